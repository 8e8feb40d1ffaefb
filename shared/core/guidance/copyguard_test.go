package guidance_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/guidance"
)

// guardOf returns the guard of a plan that adds the texts to guidance.
func guardOf(g guidance.Guidance, texts ...string) *guidance.CopyGuard {
	var plan guidance.Plan
	for _, text := range texts {
		plan.Operations = append(plan.Operations, guidance.Operation{Kind: guidance.Add, Text: text})
	}
	return guidance.NewCopyGuard(plan, g)
}

func TestCopyGuard(t *testing.T) {
	t.Parallel()
	const scaffold = "Look at the photos of the site.\nThen say pass or fail."
	const entry = "A photo without a readable date is no evidence."
	for name, c := range map[string]struct{ text, ticket, want string }{
		"verbatim": {"The cable at mast 7 hangs loose.", "Today the cable at mast 7 hangs loose.",
			"the cable at mast 7"},
		"five words":        {"see: the cable at mast 7", "xx the cable at mast 7 yy", "the cable at mast 7"},
		"four words":        {"see: the cable at mast 8", "xx the cable at mast 7 yy", ""},
		"at the ends":       {"the cable at mast 7", "the cable at mast 7", "the cable at mast 7"},
		"case, punctuation": {"THE cable (at) mast-7", "the\ncable, at mast 7.", "the cable at mast 7"},
		"line breaks":       {"a b c d e", "a\nb\r\nc\td\u2028e", "a b c d e"},
		"apostrophes":       {"don’t take what isn’t yours", "DON'T take what isn't yours", "dont take what isnt yours"},
		"other order":       {"the cable at mast 7", "mast 7 at the cable", ""},
		"a word between":    {"the cable at mast 7", "the cable at the mast 7", ""},
		"part of a word":    {"a b c d e", "a b c d ef", ""},
		"composed": {"über dem größten Mast hängt", "u\u0308BER DEM GRO\u0308ßTEN MAST HA\u0308NGT",
			"über dem größten mast hängt"},
		"soft hyphens":      {"a big cable hangs loose", "a big ca\u00adble hangs\u200b loose", "a big cable hangs loose"},
		"long s and kelvin": {"so 5 K are too many", "ſo 5 \u212a are too many", "so 5 k are too"},
		"invalid UTF-8":     {"a b c d e", "\xffa b\xc3 c d e\xed\xa0\x80", "a b c d e"},
		"of the scaffold":   {"Always look at the photos of the site!", "Please look at the photos of the site.", ""},
		"of an entry":       {"A photo without a readable date is bad.", "a photo without a readable date", ""},
		"across the entry": {"A photo without a readable date proves nothing.", "a readable date proves nothing",
			"a readable date proves nothing"},
		"two texts apart": {"the cable at|mast 7 hangs loose", "the cable at mast 7 hangs loose", ""},
		"second text":     {"short|the cable at mast 7", "the cable at mast 7", "the cable at mast 7"},
		"no text":         {"", "the cable at mast 7", ""},
		"empty ticket":    {"the cable at mast 7", "", ""},
		"Chinese, ten":    {"规则：电缆松动必须立即处理。", "现场电缆松动必须立即处理了", "电 缆 松 动 必 须 立 即 处 理"},
		"Chinese, nine":   {"规则：缆松动必须立即处理。", "现场缆松动必须立即处理了", ""},
		"mixed scripts":   {"mast 7 电缆松动了 now", "at MAST 7电缆松动了NOW ok", "mast 7 电 缆 松 动 了 now"},
		"Thai":            {"ห้ามเข้าพื้นที่ก่อน", "งานนี้ห้ามเข้าพื้นที่ก่อน", "ห้ า ม เ ข้ า พื้ น ที่ ก่"},
		"Hindi":           {"तार ढीला होने पर काम रोकें", "आज तार ढीला होने पर काम रोकें", "तार ढीला होने पर काम"},
		"digits":          {"a b c d ७", "a b c d ७", "a b c d ७"},
		"other digits":    {"a b c d ७", "a b c d ८", ""},
		"a very long word": {strings.Repeat("ab", 200) + " b c d e", strings.Repeat("ab", 300) + " b c d e",
			strings.Repeat("ab", 62) + "a b c d e"},
		"beyond the buffer": {"the cable at mast 7", strings.Repeat("word ", 5000) + "the cable at mast 7",
			"the cable at mast 7"},
		"marks alone":        {"a b c d e", "\u0301\u0301 a \u0301 b c d e", "a b c d e"},
		"many marks":         {"x b c d e", "x" + strings.Repeat("\u0301", 5000) + " b c d e", ""},
		"nothing but spaces": {"a b c d e", strings.Repeat(" ", 10000), ""},
	} {
		run, copied := guardOf(start(t, scaffold, entry), strings.Split(c.text, "|")...).Ticket(c.ticket)
		if run != c.want || copied != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, run, copied, c.want)
		}
	}
}

func TestCopyGuardIsEmptyWithoutNewWords(t *testing.T) {
	t.Parallel()
	g := start(t, "Look at the photos of the site.")
	for text, want := range map[string]bool{"": true, "four words are few": true, "look at the photos of": true,
		"look at the photos again": false} {
		if got := guardOf(g, text).Empty(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRefusalOfACopyIsBounded(t *testing.T) {
	t.Parallel()
	err := guardOf(start(t, "")).Refusal(strings.Repeat("k\xff", 1000), strings.Repeat("w ", 1000))
	if got := refusalOf(t, err); got != guidance.CopiesTicket {
		t.Error(err)
	}
}

// The twin compares every five words of the plan with every five words of the ticket.
func TestCopyGuardAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "B", "c", "Da", "é", "7"})
		gap := rapid.SampledFrom([]string{" ", ", ", "\n", "-", " (", ") ", "… "})
		text := rapid.Custom(func(t *rapid.T) []string { return rapid.SliceOfN(word, 0, 12).Draw(t, "words") })
		written := func(words []string) string {
			var b strings.Builder
			for _, w := range words {
				b.WriteString(rapid.SampledFrom([]string{w, strings.ToUpper(w)}).Draw(t, "case"))
				b.WriteString(gap.Draw(t, "gap"))
			}
			return b.String()
		}
		runs := func(words []string) map[string]bool {
			out := make(map[string]bool)
			for i := 5; i <= len(words); i++ {
				out[strings.ToLower(strings.Join(words[i-5:i], " "))] = true
			}
			return out
		}
		old, scaffold := text.Draw(t, "old"), text.Draw(t, "scaffold")
		plan, ticket := text.Draw(t, "plan"), text.Draw(t, "ticket")
		want := false
		for run := range runs(plan) {
			want = want || runs(ticket)[run] && !runs(old)[run] && !runs(scaffold)[run]
		}
		g := guidance.Guidance{Scaffold: written(scaffold), Entries: []guidance.Entry{{Text: written(old)}}}
		run, copied := guardOf(g, written(plan)).Ticket(written(ticket))
		if copied != want || copied && (!runs(plan)[run] || !runs(ticket)[run]) {
			t.Fatalf("%q, %v, want %v", run, copied, want)
		}
	})
}

// ticketOf returns a ticket of about a KB in words that repeat, like those of a language.
func ticketOf(i int, vocabulary []string) string {
	var b strings.Builder
	for n := uint32(i)*2654435761 + 1; b.Len() < 1000; n = n*1664525 + 1013904223 {
		b.WriteString(vocabulary[int(n>>16)%len(vocabulary)])
		b.WriteByte(' ')
	}
	return b.String()
}

func BenchmarkCopyGuard(b *testing.B) {
	english := strings.Fields("the cable at mast seven hangs loose and must be fixed before anyone enters the site again")
	russian := strings.Fields("кабель на мачте семь висит свободно и должен быть закреплён прежде чем кто-то войдёт")
	chinese := strings.Split("现场的电缆松动必须立即处理否则任何人不得进入", "")
	for name, vocabulary := range map[string][]string{"english": english, "russian": russian, "chinese": chinese} {
		b.Run(name, func(b *testing.B) {
			var plan []string
			for i := range 8 {
				plan = append(plan, fmt.Sprintf("%d ", i)+ticketOf(-i-1, vocabulary)[:600])
			}
			guard := guardOf(guidance.Guidance{}, plan...)
			tickets := make([]string, 1000)
			for i := range tickets {
				tickets[i] = ticketOf(i, vocabulary) // some are copied: the guard then stops early
			}
			b.ReportAllocs()
			found := 0
			for i := 0; b.Loop(); i++ {
				if _, copied := guard.Ticket(tickets[i%len(tickets)]); copied {
					found++
				}
			}
			b.ReportMetric(float64(found)/float64(b.N), "copied/op")
		})
	}
}
