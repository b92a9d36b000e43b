package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

const (
	cdiVersion      = "0.6.0"
	cdiClass        = "claim"
	devicesPerSlice = 64
)

// hardware is the file of --devices. Edits are CDI containerEdits, copied as they are.
type hardware struct {
	Devices []resourceapi.Device       `json:"devices"`
	Edits   map[string]json.RawMessage `json:"edits"` // by device name
	Common  json.RawMessage            `json:"common"`
}

func loadHardware(path string) (*hardware, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found hardware
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &found, nil
}

func (h *hardware) resources(pool string) resourceslice.DriverResources {
	var slices []resourceslice.Slice
	for start := 0; start < len(h.Devices); start += devicesPerSlice {
		slices = append(slices, resourceslice.Slice{Devices: h.Devices[start:min(start+devicesPerSlice, len(h.Devices))]})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: slices}}}
}

// held is one prepared device as the checkpoint keeps it.
type held struct {
	Requests []string `json:"requests"`
	Pool     string   `json:"pool"`
	Device   string   `json:"device"`
	CDIID    string   `json:"cdiID"`
}

// checkpoint holds all prepared claims by UID. The helper calls one method at a time, so there is no lock.
type checkpoint struct {
	Version int                  `json:"version"`
	Claims  map[types.UID][]held `json:"claims"`
}

// plugin implements kubeletplugin.DRAPlugin.
type plugin struct {
	driver, pool   string
	hardware       *hardware
	checkpointPath string
	cdiDir         string
	state          checkpoint
	holder         map[string]types.UID // by device name
	fail           func(error)
}

func newPlugin(driver, pool string, hardware *hardware, checkpointPath, cdiDir string) (*plugin, error) {
	p := &plugin{driver: driver, pool: pool, hardware: hardware, checkpointPath: checkpointPath, cdiDir: cdiDir, holder: map[string]types.UID{}}
	p.state = checkpoint{Version: 1, Claims: map[types.UID][]held{}}
	content, err := os.ReadFile(checkpointPath)
	if err == nil {
		err = json.Unmarshal(content, &p.state)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", checkpointPath, err)
	}
	for uid, devices := range p.state.Claims {
		for _, device := range devices {
			p.holder[device.Device] = uid
		}
	}
	return p, nil
}

// PrepareResourceClaims reserves the devices of all claims with one write of the checkpoint, then writes a CDI file for each claim.
func (p *plugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	changed := false
	for _, claim := range claims {
		if _, known := p.state.Claims[claim.UID]; known {
			continue
		}
		devices, err := p.plan(claim)
		if err != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		p.state.Claims[claim.UID] = devices
		for _, device := range devices {
			p.holder[device.Device] = claim.UID
		}
		changed = true
	}
	if changed {
		if err := p.save(); err != nil {
			return nil, err
		}
	}
	for _, claim := range claims {
		devices, reserved := p.state.Claims[claim.UID]
		if !reserved {
			continue
		}
		if err := p.writeCDI(claim.UID, devices); err != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: answer(devices)}
	}
	return results, nil
}

// UnprepareResourceClaims removes the CDI files, then all claims with one write of the checkpoint.
func (p *plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	changed := false
	for _, claim := range claims {
		results[claim.UID] = nil
		devices, known := p.state.Claims[claim.UID]
		if !known {
			continue
		}
		if err := os.Remove(p.cdiPath(claim.UID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			results[claim.UID] = err
			continue
		}
		for _, device := range devices {
			delete(p.holder, device.Device)
		}
		delete(p.state.Claims, claim.UID)
		changed = true
	}
	if changed {
		if err := p.save(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// HandleError ends the process where the helper cannot go on.
func (p *plugin) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.fail(err)
	}
}

// WatchHealthStatus is never called: the health service is off.
func (p *plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// plan is what the claim's allocation means here; an error where a device is unknown or held by another claim.
func (p *plugin) plan(claim *resourceapi.ResourceClaim) ([]held, error) {
	var devices []held
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != p.driver {
			continue
		}
		if _, known := p.hardware.Edits[result.Device]; !known || result.Pool != p.pool {
			return nil, fmt.Errorf("device %s/%s is unknown", result.Pool, result.Device)
		}
		if holder, taken := p.holder[result.Device]; taken {
			return nil, fmt.Errorf("device %s is prepared for claim %s", result.Device, holder)
		}
		id := fmt.Sprintf("%s=%s", p.cdiKind(), cdiName(claim.UID, result.Device))
		devices = append(devices, held{Requests: []string{result.Request}, Pool: result.Pool, Device: result.Device, CDIID: id})
	}
	return devices, nil
}

func answer(devices []held) []kubeletplugin.Device {
	answered := make([]kubeletplugin.Device, len(devices))
	for i, device := range devices {
		answered[i] = kubeletplugin.Device{Requests: device.Requests, PoolName: device.Pool, DeviceName: device.Device, CDIDeviceIDs: []string{device.CDIID}}
	}
	return answered
}

type cdiDevice struct {
	Name           string          `json:"name"`
	ContainerEdits json.RawMessage `json:"containerEdits"`
}

type cdiSpec struct {
	Version        string            `json:"cdiVersion"`
	Kind           string            `json:"kind"`
	Annotations    map[string]string `json:"annotations"`
	Devices        []cdiDevice       `json:"devices"`
	ContainerEdits json.RawMessage   `json:"containerEdits"`
}

func (p *plugin) writeCDI(uid types.UID, devices []held) error {
	spec := cdiSpec{
		Version:        cdiVersion,
		Kind:           p.cdiKind(),
		Annotations:    map[string]string{"resource.kubernetes.io/driver": p.driver, "resource.kubernetes.io/claim-uid": string(uid)},
		ContainerEdits: p.hardware.Common,
	}
	for _, device := range devices {
		spec.Devices = append(spec.Devices, cdiDevice{cdiName(uid, device.Device), p.hardware.Edits[device.Device]})
	}
	content, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return replaceFile(p.cdiPath(uid), content, 0o644)
}

func (p *plugin) save() error {
	content, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	if err := replaceFile(p.checkpointPath, content, 0o600); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(p.checkpointPath))
}

func (p *plugin) cdiKind() string { return "k8s." + p.driver + "/" + cdiClass }

func (p *plugin) cdiPath(uid types.UID) string {
	return filepath.Join(p.cdiDir, fmt.Sprintf("k8s.%s-%s_%s.json", p.driver, cdiClass, uid))
}

func cdiName(uid types.UID, device string) string { return string(uid) + "-" + device }

// replaceFile makes content appear under path whole or not at all, flushed to the disk.
func replaceFile(path string, content []byte, mode os.FileMode) (err error) {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// syncDirectory makes a rename durable.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
