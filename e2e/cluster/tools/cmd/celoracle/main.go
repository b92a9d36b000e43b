// Command celoracle answers, one JSON line per JSON line, what Kubernetes' own CEL code says about device selectors.
//
// The differential tests of the Python engine (tests/cel/engine) feed it. A line {"devices": [...]} sets the devices
// that the following expressions are evaluated on; any other line is one expression.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type attribute struct {
	Int      *int64   `json:"int"`
	Bool     *bool    `json:"bool"`
	String   *string  `json:"string"`
	Version  *string  `json:"version"`
	Ints     []int64  `json:"ints"`
	Bools    []bool   `json:"bools"`
	Strings  []string `json:"strings"`
	Versions []string `json:"versions"`
}

type device struct {
	Driver                   string               `json:"driver"`
	AllowMultipleAllocations *bool                `json:"allowMultipleAllocations"`
	Attributes               map[string]attribute `json:"attributes"`
	Capacity                 map[string]string    `json:"capacity"`
}

type request struct {
	Devices            []device `json:"devices"`
	Expression         string   `json:"expression"`
	New                bool     `json:"new"`
	ConsumableCapacity bool     `json:"consumableCapacity"`
	ListTypeAttributes bool     `json:"listTypeAttributes"`
	Repeat             int      `json:"repeat"`
}

type result struct {
	Match  *bool   `json:"match,omitempty"`
	Error  *string `json:"error,omitempty"`
	Cost   *uint64 `json:"cost,omitempty"`
	Varies bool    `json:"varies,omitempty"`
	// CostVaries says that repeated evaluations agree on the outcome but not on the cost.
	CostVaries bool `json:"costVaries,omitempty"`
}

type response struct {
	CompileError string   `json:"compileError,omitempty"`
	Type         string   `json:"type,omitempty"`
	MaxCost      *uint64  `json:"maxCost,omitempty"`
	Results      []result `json:"results,omitempty"`
	Panic        string   `json:"panic,omitempty"`
}

func (d device) input() (dracel.Device, error) {
	out := dracel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes:               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
	}
	for name, a := range d.Attributes {
		out.Attributes[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{
			IntValue: a.Int, BoolValue: a.Bool, StringValue: a.String, VersionValue: a.Version,
			IntValues: a.Ints, BoolValues: a.Bools, StringValues: a.Strings, VersionValues: a.Versions,
		}
	}
	for name, text := range d.Capacity {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return out, fmt.Errorf("capacity %s: %w", name, err)
		}
		out.Capacity[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: quantity}
	}
	return out, nil
}

func evaluate(compiled dracel.CompilationResult, input dracel.Device) result {
	var out result
	match, details, err := compiled.DeviceMatches(context.Background(), input)
	if details != nil {
		out.Cost = details.ActualCost()
	}
	if err != nil {
		text := err.Error()
		out.Error = &text
	} else {
		out.Match = &match
	}
	return out
}

func same(a, b result) bool {
	if (a.Match == nil) != (b.Match == nil) {
		return false
	}
	if a.Match != nil {
		return *a.Match == *b.Match
	}
	return *a.Error == *b.Error
}

func answer(req request, devices []dracel.Device) (out response) {
	defer func() {
		if r := recover(); r != nil {
			out = response{Panic: fmt.Sprint(r)}
		}
	}()
	envType := environment.StoredExpressions
	if req.New {
		envType = environment.NewExpressions
	}
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: req.ConsumableCapacity, EnableListTypeAttributes: req.ListTypeAttributes,
	})
	compiled := compiler.CompileCELExpression(req.Expression, dracel.Options{EnvType: &envType})
	if compiled.Error != nil {
		return response{CompileError: compiled.Error.Detail}
	}
	out.Type = compiled.OutputType.String()
	out.MaxCost = &compiled.MaxCost
	for _, input := range devices {
		first := evaluate(compiled, input)
		for range max(req.Repeat, 1) - 1 {
			again := evaluate(compiled, input)
			if !same(first, again) {
				first.Varies = true
			}
			if first.Cost != nil && again.Cost != nil && *first.Cost != *again.Cost {
				first.CostVaries = true
			}
		}
		out.Results = append(out.Results, first)
	}
	return out
}

func run() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	decoder := json.NewDecoder(in)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	var devices []dracel.Device
	for decoder.More() {
		var req request
		if err := decoder.Decode(&req); err != nil {
			return err
		}
		if req.Devices != nil {
			devices = nil
			for _, d := range req.Devices {
				input, err := d.input()
				if err != nil {
					return err
				}
				devices = append(devices, input)
			}
			continue
		}
		if err := encoder.Encode(answer(req, devices)); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "celoracle:", err)
		os.Exit(1)
	}
}
