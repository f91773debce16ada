package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// machines are the processors for which confine knows the kernel's name.
var machines = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// forbidden lists system calls that neither this program nor libpcsclite makes. They
// start or inspect other programs; the last one would make sockets past the filter.
var forbidden = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_IO_URING_SETUP,
}

// x32 marks system calls of amd64's other interface, which has numbers of its own.
const x32 = 0x40000000

// Offsets in the data of a filter (struct seccomp_data).
const (
	offsetNumber  = 0
	offsetMachine = 4
	offsetFirst   = 16 // the first argument's lower half: both machines are little-endian
)

// confine permanently forbids all threads what an exploited flaw in the code next to
// the card would need: starting programs, and sockets that lead off the machine. The
// calling thread must have set no_new_privs; confine sets it for the others. On other
// processors than the two it does nothing: it is a second line of defence.
func confine() error {
	machine, ok := machines[runtime.GOARCH]
	if !ok {
		return nil
	}
	filter := rules(machine)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has a filter of its own", thread)
	}
	return nil
}

// rules returns the filter. Jumps count the instructions that they skip.
func rules(machine uint32) []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		leave = unix.BPF_RET | unix.BPF_K
		deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	filter := []unix.SockFilter{
		{Code: load, K: offsetMachine},
		{Code: equal, K: machine, Jt: 1},
		{Code: leave, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: offsetNumber},
		{Code: least, K: x32, Jf: 1},
		{Code: leave, K: deny},
	}
	for _, number := range forbidden {
		filter = append(filter, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: leave, K: deny})
	}
	return append(filter,
		unix.SockFilter{Code: equal, K: unix.SYS_SOCKET, Jt: 1},
		unix.SockFilter{Code: leave, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: load, K: offsetFirst},
		unix.SockFilter{Code: equal, K: unix.AF_UNIX, Jf: 1},
		unix.SockFilter{Code: leave, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: leave, K: deny},
	)
}
