package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctls and constants of linux/kvm.h; the sizes of the structures are part of the numbers.
const (
	kvmGetAPIVersion  = 0xae00
	kvmCreateVM       = 0xae01
	kvmGetMmapSize    = 0xae04
	kvmCreateVCPU     = 0xae41
	kvmSetMemory      = 0x4020ae46 // struct kvm_userspace_memory_region
	kvmSetTSSAddr     = 0xae47
	kvmRun            = 0xae80
	kvmSetRegs        = 0x4090ae82 // struct kvm_regs
	kvmGetSregs       = 0x8138ae83 // struct kvm_sregs
	kvmSetSregs       = 0x4138ae84
	kvmAPIVersion     = 12
	kvmExitIO         = 2
	kvmExitHlt        = 5
	kvmExitIntr       = 10
	kvmRunImmediate   = 1  // offset of immediate_exit in struct kvm_run
	kvmRunReason      = 8  // of exit_reason
	kvmRunIO          = 32 // of io: direction, size, port, count, data_offset
	tssAddr           = 0xfffbd000
	probePort         = 0x6e6d
	probeByte         = 0xa5
	guestMemory       = 64 << 10
	codeAt            = 0x8000
	cr0PE, cr0PG      = 1 << 0, 1 << 31
	cr4PAE            = 1 << 5
	eferLME, eferLMA  = 1 << 8, 1 << 10
	pagePW, pageLarge = 1<<0 | 1<<1, 1 << 7
)

// probeCode is the probe's guest: 64-bit code at CPL 0 that reloads CR3, writes a byte to a port and halts. A real
// kernel needs long mode with paging, and incomplete KVMs fail at it.
var probeCode = []byte{
	0x0f, 0x20, 0xd8, // mov rax, cr3
	0x0f, 0x22, 0xd8, // mov cr3, rax
	0x66, 0xba, 0x6d, 0x6e, // mov dx, probePort
	0xb0, probeByte, // mov al, probeByte
	0xee, // out dx, al
	0xf4, // hlt
}

type kvmRegion struct {
	slot, flags            uint32
	guestAddr, size, uaddr uint64
}

type kvmRegs struct {
	gpr         [16]uint64
	rip, rflags uint64
}

type kvmSegment struct {
	base                              uint64
	limit                             uint32
	selector                          uint16
	typ, present, dpl, db, s, l, gran uint8
	avl, unusable, pad                uint8
}

type kvmDtable struct {
	base  uint64
	limit uint16
	pad   [3]uint16
}

type kvmSregs struct {
	cs, ds, es, fs, gs, ss, tr, ldt kvmSegment
	gdt, idt                        kvmDtable
	cr0, cr2, cr3, cr4, cr8         uint64
	efer, apicBase                  uint64
	interrupts                      [4]uint64
}

func ioctl(fd int, req, arg uintptr) (int, error) {
	for {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, arg)
		if errno == unix.EINTR && req != kvmRun {
			continue
		}
		if errno != 0 {
			return -1, errno
		}
		return int(r), nil
	}
}

// probeKVM runs a few guest instructions on an open /dev/kvm and fails if they do not have the expected effect within
// limit.
func probeKVM(dev *os.File, limit time.Duration) error {
	kvm := int(dev.Fd())
	if v, err := ioctl(kvm, kvmGetAPIVersion, 0); err != nil {
		return fmt.Errorf("KVM_GET_API_VERSION: %w", err)
	} else if v != kvmAPIVersion {
		return fmt.Errorf("KVM API version %d, not %d", v, kvmAPIVersion)
	}
	vm, err := ioctl(kvm, kvmCreateVM, 0)
	if err != nil {
		return fmt.Errorf("KVM_CREATE_VM: %w", err)
	}
	defer unix.Close(vm)
	// Required by Intel CPUs without "unrestricted guest"; AMD ignores it.
	if _, err := ioctl(vm, kvmSetTSSAddr, tssAddr); err != nil {
		return fmt.Errorf("KVM_SET_TSS_ADDR: %w", err)
	}
	mem, err := unix.Mmap(-1, 0, guestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	fillGuest(mem)
	reg := kvmRegion{size: guestMemory, uaddr: uint64(uintptr(unsafe.Pointer(&mem[0])))}
	if _, err := ioctl(vm, kvmSetMemory, uintptr(unsafe.Pointer(&reg))); err != nil {
		return fmt.Errorf("KVM_SET_USER_MEMORY_REGION: %w", err)
	}
	vcpu, err := ioctl(vm, kvmCreateVCPU, 0)
	if err != nil {
		return fmt.Errorf("KVM_CREATE_VCPU: %w", err)
	}
	defer unix.Close(vcpu)
	size, err := ioctl(kvm, kvmGetMmapSize, 0)
	if err != nil || size < 4096 {
		return fmt.Errorf("KVM_GET_VCPU_MMAP_SIZE: %d, %v", size, err)
	}
	run, err := unix.Mmap(vcpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(run)
	if err := setRegisters(vcpu); err != nil {
		return err
	}
	return runProbe(vcpu, run, limit)
}

// fillGuest writes page tables that map the first 2 MiB to itself, and the code.
func fillGuest(mem []byte) {
	le := binary.LittleEndian
	le.PutUint64(mem[0x1000:], 0x2000|pagePW)
	le.PutUint64(mem[0x2000:], 0x3000|pagePW)
	le.PutUint64(mem[0x3000:], 0|pagePW|pageLarge)
	copy(mem[codeAt:], probeCode)
}

func setRegisters(vcpu int) error {
	var s kvmSregs
	if _, err := ioctl(vcpu, kvmGetSregs, uintptr(unsafe.Pointer(&s))); err != nil {
		return fmt.Errorf("KVM_GET_SREGS: %w", err)
	}
	code := kvmSegment{limit: 0xffffffff, selector: 8, typ: 11, present: 1, s: 1, l: 1, gran: 1}
	data := kvmSegment{limit: 0xffffffff, selector: 16, typ: 3, present: 1, db: 1, s: 1, gran: 1}
	s.cs, s.ds, s.es, s.fs, s.gs, s.ss = code, data, data, data, data, data
	s.cr0, s.cr3, s.cr4 = cr0PE|cr0PG|0x10, 0x1000, cr4PAE
	s.efer = eferLME | eferLMA
	if _, err := ioctl(vcpu, kvmSetSregs, uintptr(unsafe.Pointer(&s))); err != nil {
		return fmt.Errorf("KVM_SET_SREGS: %w", err)
	}
	r := kvmRegs{rip: codeAt, rflags: 2}
	r.gpr[6] = 0x7000 // rsp: after rax, rbx, rcx, rdx, rsi, rdi
	if _, err := ioctl(vcpu, kvmSetRegs, uintptr(unsafe.Pointer(&r))); err != nil {
		return fmt.Errorf("KVM_SET_REGS: %w", err)
	}
	return nil
}

// runProbe runs the vCPU to its hlt. A signal to its thread interrupts a guest that does not exit.
func runProbe(vcpu int, run []byte, limit time.Duration) error {
	done := make(chan error, 1)
	tid := make(chan int, 1)
	var late atomic.Bool
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		done <- runToHalt(vcpu, run, &late)
	}()
	thread := <-tid
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
			late.Store(true)
			run[kvmRunImmediate] = 1
			// SIGURG has no other effect, because the Go runtime handles it; KVM_RUN returns EINTR.
			unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
			timer.Reset(time.Millisecond)
		}
	}
}

func runToHalt(vcpu int, run []byte, late *atomic.Bool) error {
	le := binary.LittleEndian
	said := false
	for n := 0; n < 1000; n++ {
		_, err := ioctl(vcpu, kvmRun, 0)
		if late.Load() {
			return errors.New("its first instructions did not end in time")
		}
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			n--
			continue
		}
		if err != nil {
			return fmt.Errorf("KVM_RUN: %w", err)
		}
		switch reason := le.Uint32(run[kvmRunReason:]); reason {
		case kvmExitIntr:
		case kvmExitIO:
			port := le.Uint16(run[kvmRunIO+2:])
			at := le.Uint64(run[kvmRunIO+8:])
			if port != probePort || at >= uint64(len(run)) || run[at] != probeByte {
				return errors.New("its first instructions failed")
			}
			said = true
		case kvmExitHlt:
			if !said {
				return errors.New("its first instructions failed")
			}
			return nil
		default:
			return fmt.Errorf("KVM_RUN: exit reason %d", reason)
		}
	}
	return errors.New("its first instructions did not end")
}
