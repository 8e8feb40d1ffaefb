// Package isolation runs an untrusted command, such as an agent that a model drives,
// with limits, and so that it can neither see nor harm the worker, its secrets, or the command
// beside it.
//
//	staged folders ─copy─▶ work ─┐                             ┌─▶ verdict, output, use of the machine
//	folders, read-only ──────────┼─▶ the command's processes ─┤
//	Unix socket ◀── 127.0.0.1 ───┘                             └─▶ out, work ─copy─▶ folders
//
// Open a Sandbox, and Run commands in it. Probe says which level the machine permits, by
// setting everything up once; the outcome says what enforced each limit. The worker's program
// executes itself as the sandbox's first process and as the launcher of the command: it calls
// Main first of all.
//
// At the level Full, files lie in memory, in one tmpfs for the folders work, out, tmp and
// /dev/shm. With a cgroup, those that the command writes are part of its memory. The level
// needs user namespaces and Linux 5.12, and as an ordinary user no more: without a cgroup,
// samples bound memory, CPU time and processes of all together, and rlimits those of each. The
// level Trusted needs version 6 of Landlock (Linux 6.12), and a cgroup of the worker's own with
// limits of memory and processes and with cgroup.kill. Everything else is refused, with the
// reason.
//
// What stops a command (in brackets: at the level Full, a second wall):
//
//	threat                              | full                                   | trusted
//	------------------------------------+----------------------------------------+-------------------------------
//	reads files of the worker, secrets, | mount namespace that has the system's  | Landlock; own user if the
//	targets, other commands' folders    | folders alone; own user [Landlock]     | worker is root
//	reads the worker's environment,     | pid namespace, hidden processes of     | Landlock keeps it from others'
//	memory, open files                  | others, closed descriptors [Landlock]  | processes; closed descriptors
//	writes to the system                | read-only mounts; own user [Landlock]  | Landlock
//	signals other processes             | pid namespace; init has no handlers    | Landlock; own user
//	                                    | [Landlock]                             |
//	ptrace, foreign memory              | pid and user namespace, seccomp        | Landlock, seccomp
//	mount, kexec, modules, clock, bpf,  | no capability, seccomp                 | no capability, seccomp
//	io_uring, keys, new namespaces      |                                        |
//	32-bit system calls                 | seccomp                                | seccomp
//	set-user-ID programs                | no_new_privs, nosuid mounts            | no_new_privs
//	DNS, the internet, metadata servers | network namespace without a route      | seccomp: TCP alone; Landlock:
//	                                    |                                        | the forwards' ports alone
//	the machine's loopback ports        | network namespace                      | Landlock, by port
//	Unix sockets of the machine         | mount and network namespace [Landlock] | seccomp: none; [Landlock]
//	virtual machine and packet sockets  | seccomp, no capability                 | seccomp, no capability
//	fork bomb                           | cgroup; else rlimit and samples        | cgroup
//	endless memory                      | cgroup; else rlimit, samples, seccomp  | cgroup
//	                                    | (no shared anonymous memory)           |
//	endless computing                   | cgroup and samples; else rlimit        | cgroup and samples
//	endless output                      | counted; the beginning is kept         | the same
//	huge files, millions of files       | tmpfs with both limits                 | samples; rlimit of each file
//	ignores SIGTERM, becomes a daemon   | the end of the pid namespace           | cgroup.kill
//	outlives the worker                 | parent death signal, closed channel    | closed channel, cgroup.kill
//	links, pipes, devices in its out    | left out, and never followed           | the same, and hard links
//	folder; deep folders; odd names     |                                        |
//	floods its forward                  | 64 connections at once                 | the same
//
// Not stopped: at the level Trusted, a command sees the list of the machine's processes, can
// connect to the forward's port on any host, and can pass its disk limit for the time between
// two samples. As an ordinary user, a command keeps the worker's supplementary groups, and at
// the level Full without a cgroup its processes can together pass their memory limit for that
// time. A kernel with a hole that its system calls reach is the end of every wall here.
//
// Open names what is private of the worker. Where it lies below a folder that commands see, such as
// an installation in /usr/local, the level Full covers it with an empty folder, and the level
// Trusted refuses; where it has such a folder, both refuse. The same files at another path, by a
// bind mount or a hard link, are not found.
//
// Leftovers of a worker that was killed are removed by the next Open of the same folder, which
// all workers of a machine should share.
package isolation
