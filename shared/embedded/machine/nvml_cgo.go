//go:build cgo && nvml

package machine

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"rollout/shared/capacity"
)

// canProbe reports whether this binary can query GPUs: it has NVML.
func canProbe() bool { return true }

// queryNVML calls emit with NVML's data about each GPU: first with what every driver
// supports, then again after each step that needs a newer driver. If the library is
// missing, only Init may be called: any other function would kill the process.
func queryNVML(emit func(known []gpuReport) error) error {
	if nvml.Init() != nvml.SUCCESS {
		return emit([]gpuReport{})
	}
	defer nvml.Shutdown() // the process exits afterwards; errors do not matter
	count, status := nvml.DeviceGetCount()
	if status != nvml.SUCCESS {
		return fmt.Errorf("count the GPUs: %s", nvml.ErrorString(status))
	}
	driver, _ := nvml.SystemGetDriverVersion() // "" if it fails
	known := []gpuReport{}
	var devices []nvml.Device
	for i := range min(count, maxGPUs) {
		device, status := nvml.DeviceGetHandleByIndex(i)
		if status != nvml.SUCCESS {
			continue // the GPU has fallen off the bus
		}
		devices = append(devices, device)
		known = append(known, identify(device, i, driver))
	}
	if err := emit(known); err != nil {
		return err
	}
	for _, examine := range []func(nvml.Device, *gpuReport){examineState, examineMemory, examineRecovery} {
		for i, device := range devices {
			examine(device, &known[i])
		}
		if err := emit(known); err != nil {
			return err
		}
	}
	return nil
}

// identify reads what identifies the GPU.
func identify(device nvml.Device, index int, driver string) gpuReport {
	report := gpuReport{GPU: capacity.GPU{Index: index}, Driver: driver}
	if uuid, status := device.GetUUID(); status == nvml.SUCCESS {
		report.UUID = uuid
	}
	if name, status := device.GetName(); status == nvml.SUCCESS {
		report.Name = name
	}
	if memory, status := device.GetMemoryInfo(); status == nvml.SUCCESS {
		report.MemoryBytes = memory.Total
	}
	if pci, status := device.GetPciInfo(); status == nvml.SUCCESS {
		report.PCI = fmt.Sprintf("%08x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	}
	return report
}

// examineState reads temperature, power and MIG mode.
func examineState(device nvml.Device, report *gpuReport) {
	if celsius, status := device.GetTemperature(nvml.TEMPERATURE_GPU); status == nvml.SUCCESS {
		report.TemperatureC = celsius
	}
	if milliwatts, status := device.GetPowerUsage(); status == nvml.SUCCESS {
		report.PowerMilliwatts = milliwatts
	}
	if mode, _, status := device.GetMigMode(); status == nvml.SUCCESS {
		report.MIG = mode == nvml.DEVICE_MIG_ENABLE
	}
}

// examineMemory reads memory errors and remapped rows.
func examineMemory(device nvml.Device, report *gpuReport) {
	errors, status := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	if status == nvml.SUCCESS {
		report.UncorrectedECC = errors
	}
	if _, _, pending, failed, status := device.GetRemappedRows(); status == nvml.SUCCESS {
		report.RemapPending, report.RemapFailed = pending, failed
	}
}

// examineRecovery reads reduced clocks and the recovery action.
func examineRecovery(device nvml.Device, report *gpuReport) {
	if reasons, status := device.GetCurrentClocksEventReasons(); status == nvml.SUCCESS {
		report.ClockReasons = reasons
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(fields) == nvml.SUCCESS && nvml.Return(fields[0].NvmlReturn) == nvml.SUCCESS {
		report.RecoveryAction = binary.NativeEndian.Uint32(fields[0].Value[:4])
	}
}
