package queue

import (
	"strings"
	"time"
	"unicode/utf8"

	"rollout/shared/fault"
)

// MaxReceive is the most messages that one Receive may ask for.
const MaxReceive = 1000

// MaxVisibility is the longest visibility or delay: Pub/Sub's longest deadline.
const MaxVisibility = 10 * time.Minute

const deadSuffix = "-dead"

// IsDeadLetterQueue reports whether the queue holds dead letters.
func IsDeadLetterQueue(queue string) bool { return strings.HasSuffix(queue, deadSuffix) }

// CheckName refuses, as Invalid, a queue's name that some store can't hold.
func CheckName(queue string) error {
	base := strings.TrimSuffix(queue, deadSuffix)
	if base == "" || len(base) > MaxName {
		return fault.New(fault.Invalid, "queue name %.80q has %d bytes, it must have 1 to %d", queue, len(base), MaxName)
	}
	for i := range len(base) {
		if c := base[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fault.New(fault.Invalid, "queue name %q has byte 0x%02x at %d, only a-z, 0-9 and - are allowed", queue, c, i)
		}
	}
	return nil
}

// CheckSend checks the arguments of Send.
func CheckSend(queue string, bodies [][]byte, delay time.Duration) error {
	if err := CheckName(queue); err != nil {
		return err
	}
	for i, b := range bodies {
		switch {
		case len(b) == 0:
			return fault.New(fault.Invalid, "send to queue %s: body %d is empty", queue, i)
		case len(b) > MaxBody:
			return fault.New(fault.Invalid, "send to queue %s: body %d is %d bytes, the limit is %d", queue, i, len(b), MaxBody)
		case !utf8.Valid(b):
			return fault.New(fault.Invalid, "send to queue %s: body %d is not UTF-8", queue, i)
		}
	}
	return checkSpan(queue, "delay", delay, 0)
}

// CheckReceive checks the arguments of Receive.
func CheckReceive(queue string, max int, visibility, wait time.Duration) error {
	if err := CheckName(queue); err != nil {
		return err
	}
	if max < 1 || max > MaxReceive {
		return fault.New(fault.Invalid, "receive from queue %s: max %d is not within 1 to %d", queue, max, MaxReceive)
	}
	if err := checkSpan(queue, "visibility", visibility, 1); err != nil {
		return err
	}
	if wait < 0 {
		return fault.New(fault.Invalid, "receive from queue %s: wait %v is negative", queue, wait)
	}
	return nil
}

// CheckExtend checks the arguments of Extend.
func CheckExtend(queue string, visibility time.Duration) error {
	if err := CheckName(queue); err != nil {
		return err
	}
	return checkSpan(queue, "visibility", visibility, 1)
}

// CheckNack checks the arguments of Nack.
func CheckNack(queue string, delay time.Duration) error {
	if err := CheckName(queue); err != nil {
		return err
	}
	return checkSpan(queue, "delay", delay, 0)
}

func checkSpan(queue, what string, d, least time.Duration) error {
	if d < least || d > MaxVisibility {
		return fault.New(fault.Invalid, "queue %s: %s %v is not within %v to %v", queue, what, d, least, MaxVisibility)
	}
	return nil
}
