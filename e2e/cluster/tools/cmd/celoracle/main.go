// Command celoracle answers, one JSON line per JSON line, what Kubernetes' own CEL code says about device selectors.
//
// The differential tests of the Python engine (tests/cel/engine) feed it. A line {"devices": [...]} sets the devices
// that the following expressions are evaluated on; any other line is one expression. With "measure" it is timed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/blang/semver/v4"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
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
	Measure            int      `json:"measure"`
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
	Timing       *timing  `json:"timing,omitempty"`
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

// values builds the maps that the scheduler builds for each evaluation.
func (d device) values(input dracel.Device) map[string]any {
	attributes, capacity := map[string]any{}, map[string]any{}
	put := func(domains map[string]any, name string, value any) {
		domain, id, found := strings.Cut(name, "/")
		if !found {
			domain, id = d.Driver, name
		}
		if domains[domain] == nil {
			domains[domain] = map[string]any{}
		}
		domains[domain].(map[string]any)[id] = value
	}
	for name, a := range d.Attributes {
		switch {
		case a.Int != nil:
			put(attributes, name, *a.Int)
		case a.Bool != nil:
			put(attributes, name, *a.Bool)
		case a.String != nil:
			put(attributes, name, *a.String)
		case a.Version != nil:
			put(attributes, name, apiservercel.Semver{Version: semver.MustParse(*a.Version)})
		case a.Strings != nil:
			put(attributes, name, a.Strings)
		}
	}
	for name, c := range input.Capacity {
		put(capacity, string(name), apiservercel.Quantity{Quantity: &c.Value})
	}
	return map[string]any{"attributes": attributes, "capacity": capacity}
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
	writer := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	var devices []dracel.Device
	var values []map[string]any
	for decoder.More() {
		var req request
		if err := decoder.Decode(&req); err != nil {
			return err
		}
		if req.Devices != nil {
			devices, values = nil, nil
			for _, d := range req.Devices {
				input, err := d.input()
				if err != nil {
					return err
				}
				devices = append(devices, input)
				values = append(values, d.values(input))
			}
			continue
		}
		out := answer(req, devices)
		if req.Measure > 0 {
			timing := measure(req, devices, values)
			out.Timing = &timing
		}
		if err := encoder.Encode(out); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
	return writer.Flush()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "celoracle:", err)
		os.Exit(1)
	}
}
