// Package wasm runs plugins that are WebAssembly modules, inside of the worker's process.
//
// A module exports its memory and four functions (an i32 is an address or a length):
//
//	rollout_abi_version() i32         the version of the protocol: 1
//	rollout_alloc(size i32) i32       memory for a request
//	rollout_call(at, size i32) i64    answers the request there: the address of the reply, and in the
//	                                  lower half its length
//	rollout_free(at, size i32)        takes back a reply, which the worker has copied
//
// It may import wasi_snapshot_preview1, with nothing behind it: no files, arguments, variables
// and network; clocks that count the calls, and random numbers that are the same in every
// instance. Each call gets a new instance, so that a reply depends on the request alone, and a
// module that traps harms no other call.
//
// The package does not log, and keeps no state between calls but the compiled module.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/fault"
)

// The functions of a module.
const (
	exportVersion = "rollout_abi_version"
	exportAlloc   = "rollout_alloc"
	exportCall    = "rollout_call"
	exportFree    = "rollout_free"
	exportMemory  = "memory"
)

// pagesPerMiB is how many pages of WebAssembly a MiB has.
const pagesPerMiB = (1 << 20) / (64 << 10)

// maxModuleMemory is the memory of a module's addresses of 32 bits, in MiB.
const maxModuleMemory = 4096

// Module is a compiled module. It is safe for concurrent use.
type Module struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// Load compiles the module in a file, and checks that it is a plugin: its version comes from an
// instance that runs. An instance has at most memoryMB MiB. A file that is not such a module is
// Invalid.
func Load(ctx context.Context, path string, memoryMB int) (_ *Module, err error) {
	code, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.WithKind(fault.NotFound, err, "read the module")
	}
	limit := uint32(min(memoryMB, maxModuleMemory) * pagesPerMiB)
	m := &Module{runtime: wazero.NewRuntimeWithConfig(ctx,
		wazero.NewRuntimeConfig().WithMemoryLimitPages(limit).WithCloseOnContextDone(true))}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return nil, fault.WithKind(fault.Internal, err, "prepare the imports of a module")
	}
	if m.compiled, err = m.runtime.CompileModule(ctx, code); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "compile the module")
	}
	if err := m.checkInterface(); err != nil {
		return nil, err
	}
	return m, m.checkVersion(ctx)
}

// checkInterface checks what the module imports and exports.
func (m *Module) checkInterface() error {
	for _, f := range m.compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); module != wasi_snapshot_preview1.ModuleName {
			return fault.New(fault.Invalid, "the module imports the function %s of %q, which no worker has: it may import %s "+
				"alone", name, module, wasi_snapshot_preview1.ModuleName)
		}
	}
	if m.compiled.ExportedMemories()[exportMemory] == nil {
		return fault.New(fault.Invalid, "the module does not export its memory as %q", exportMemory)
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	functions := m.compiled.ExportedFunctions()
	for _, want := range []struct {
		name            string
		params, results []api.ValueType
	}{
		{exportVersion, nil, []api.ValueType{i32}},
		{exportAlloc, []api.ValueType{i32}, []api.ValueType{i32}},
		{exportCall, []api.ValueType{i32, i32}, []api.ValueType{i64}},
		{exportFree, []api.ValueType{i32, i32}, nil},
	} {
		f := functions[want.name]
		if f == nil {
			return fault.New(fault.Invalid, "the module does not export the function %s", want.name)
		}
		if !slices.Equal(f.ParamTypes(), want.params) || !slices.Equal(f.ResultTypes(), want.results) {
			return fault.New(fault.Invalid, "the module's function %s takes %d values and returns %d, or other types than the "+
				"protocol says", want.name, len(f.ParamTypes()), len(f.ResultTypes()))
		}
	}
	return nil
}

func (m *Module) checkVersion(ctx context.Context) error {
	i, err := m.start(ctx)
	if err != nil {
		return err
	}
	defer i.close()
	got, err := i.call(ctx, exportVersion)
	if err != nil {
		return err
	}
	return wire.CheckABI(int64(int32(got)))
}

// Call has a new instance answer a request, until ctx ends. The plugin's own error and a trap
// are Invalid: the same request would fail again. A reply that is malformed, and a call that
// takes too long, are Unavailable.
func (m *Module) Call(ctx context.Context, method string, payload []byte) ([]byte, error) {
	request, err := wire.AppendRequest(nil, method, payload)
	if err != nil {
		return nil, err
	}
	i, err := m.start(ctx)
	if err != nil {
		return nil, err
	}
	defer i.close()
	at, err := i.call(ctx, exportAlloc, uint64(len(request)))
	if err != nil {
		return nil, err
	}
	if !i.memory.Write(uint32(at), request) {
		return nil, fault.New(fault.Invalid, "the module has no room for a request of %d bytes at %d", len(request),
			uint32(at))
	}
	packed, err := i.call(ctx, exportCall, at, uint64(len(request)))
	if err != nil {
		return nil, err
	}
	replyAt, size := uint32(packed>>32), uint32(packed)
	if size > wire.MaxBytes {
		return nil, fault.New(fault.Invalid, "the module's reply has %d bytes, and at most %d are allowed", size,
			wire.MaxBytes)
	}
	view, ok := i.memory.Read(replyAt, size)
	if !ok {
		return nil, fault.New(fault.Invalid, "the module's reply of %d bytes at %d is outside of its memory", size, replyAt)
	}
	reply := slices.Clone(view) // before the module may write there again
	if _, err := i.call(ctx, exportFree, uint64(replyAt), uint64(size)); err != nil {
		return nil, err
	}
	return wire.DecodeReply(reply)
}

// Close frees the module. Calls must have ended.
func (m *Module) Close() error {
	return fault.WithKind(fault.Internal, m.runtime.Close(context.Background()), "free a module")
}

// instance is one instance of a module.
type instance struct {
	module api.Module
	memory api.Memory
}

// start makes an instance, and lets it initialize itself.
func (m *Module) start(ctx context.Context) (instance, error) {
	module, err := m.runtime.InstantiateModule(ctx, m.compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		return instance{}, problem(ctx, err, "start an instance")
	}
	return instance{module, module.ExportedMemory(exportMemory)}, nil
}

func (i instance) close() { _ = i.module.Close(context.Background()) } // frees memory; a module has no say in it

// call calls an exported function, which has one result at most.
func (i instance) call(ctx context.Context, name string, args ...uint64) (uint64, error) {
	results, err := i.module.ExportedFunction(name).Call(ctx, args...)
	switch {
	case err != nil:
		return 0, problem(ctx, err, name)
	case len(results) == 0:
		return 0, nil
	}
	return results[0], nil
}

// maxTrap bounds what is repeated of a trap, which has the names of a module's functions.
const maxTrap = 500

// problem returns the error of an instance that ended before its function did.
func problem(ctx context.Context, err error, doing string) error {
	if ctx.Err() != nil {
		return fault.WithKind(fault.Unavailable, ctx.Err(), "the module's %s took too long", doing)
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fault.New(fault.Invalid, "the module's %s ended the program with %d", doing, exit.ExitCode())
	}
	text := fmt.Sprintf("%.*s", maxTrap, err.Error())
	return fault.New(fault.Invalid, "the module trapped in %s: %q", doing, text)
}
