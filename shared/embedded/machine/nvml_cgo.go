//go:build cgo && nvml

package machine

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"rollout/shared/capacity"
)

// canProbe: this binary can ask NVML.
func canProbe() bool { return true }

// queryNVML tells what NVML knows of each GPU, first what every driver has and
// then, bit by bit, what newer ones do. Without the library nothing but Init
// may be called: anything else would end the process.
func queryNVML(tell func(known []gpuReport) error) error {
	if nvml.Init() != nvml.SUCCESS {
		return tell([]gpuReport{})
	}
	defer nvml.Shutdown() // the process ends right after
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
			continue // fallen off the bus
		}
		devices = append(devices, device)
		known = append(known, identify(device, i, driver))
	}
	if err := tell(known); err != nil {
		return err
	}
	for _, examine := range []func(nvml.Device, *gpuReport){examineState, examineMemory, examineRecovery} {
		for i, device := range devices {
			examine(device, &known[i])
		}
		if err := tell(known); err != nil {
			return err
		}
	}
	return nil
}

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

func examineMemory(device nvml.Device, report *gpuReport) {
	if errors, status := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); status == nvml.SUCCESS {
		report.UncorrectedECC = errors
	}
	if _, _, pending, failed, status := device.GetRemappedRows(); status == nvml.SUCCESS {
		report.RemapPending, report.RemapFailed = pending, failed
	}
}

func examineRecovery(device nvml.Device, report *gpuReport) {
	if reasons, status := device.GetCurrentClocksEventReasons(); status == nvml.SUCCESS {
		report.ClockReasons = reasons
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(fields) == nvml.SUCCESS && nvml.Return(fields[0].NvmlReturn) == nvml.SUCCESS {
		report.RecoveryAction = binary.NativeEndian.Uint32(fields[0].Value[:4])
	}
}
