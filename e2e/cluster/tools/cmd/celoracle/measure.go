package main

import (
	"context"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// timing says how long Go takes, in nanoseconds per operation.
type timing struct {
	Compile       float64 `json:"compile"`
	DeviceMatches float64 `json:"deviceMatches"`
	// Prebuilt is the evaluation alone, on maps that are built once per device.
	Prebuilt float64 `json:"prebuilt"`
}

// withDefault is a map in which every domain exists, as in the scheduler's.
type withDefault struct {
	traits.Mapper
	empty ref.Val
}

func (m withDefault) Find(key ref.Val) (ref.Val, bool) {
	if value, found := m.Mapper.Find(key); found {
		return value, true
	}
	return m.empty, true
}

func perOperation(count int, operation func(int)) float64 {
	start := time.Now()
	for i := range count {
		operation(i)
	}
	return float64(time.Since(start).Nanoseconds()) / float64(count)
}

func measure(req request, devices []dracel.Device, values []map[string]any) timing {
	envType := environment.StoredExpressions
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	options := dracel.Options{EnvType: &envType, DisableCostEstimation: true}
	compiled := compiler.CompileCELExpression(req.Expression, options)
	var out timing
	out.Compile = perOperation(max(req.Measure/100, 10), func(int) { compiler.CompileCELExpression(req.Expression, options) })
	ctx := context.Background()
	out.DeviceMatches = perOperation(req.Measure, func(i int) { _, _, _ = compiled.DeviceMatches(ctx, devices[i%len(devices)]) })
	variables := make([]map[string]any, len(devices))
	for i, device := range devices {
		adapter := compiled.Environment.CELTypeAdapter()
		empty := adapter.NativeToValue(map[string]any{})
		variables[i] = map[string]any{"device": map[string]any{
			"driver": device.Driver, "allowMultipleAllocations": false,
			"attributes": withDefault{types.NewStringInterfaceMap(adapter, values[i]["attributes"].(map[string]any)), empty},
			"capacity":   withDefault{types.NewStringInterfaceMap(adapter, values[i]["capacity"].(map[string]any)), empty},
		}}
	}
	out.Prebuilt = perOperation(req.Measure, func(i int) { _, _, _ = compiled.Program.ContextEval(ctx, variables[i%len(variables)]) })
	return out
}
