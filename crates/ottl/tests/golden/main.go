// Writes golden.txt: inputs, and for each row an input, a statement, and the telemetry that the Collector's transform
// processor makes of them. A row ends with "error" if the statement fails, and with "invalid" if it is refused.
//
//	go run . > ../golden.txt
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
)

var factory = transformprocessor.NewFactory()

var placeholder = regexp.MustCompile(`<[a-z]+>`)

func configure(key, context, statement string) component.Config {
	config := factory.CreateDefaultConfig()
	group := map[string]any{"context": context, "statements": []any{statement}}
	values := confmap.NewFromStringMap(map[string]any{"error_mode": "propagate", key: []any{group}})
	if err := values.Unmarshal(config); err != nil {
		panic(err)
	}
	return config
}

func run(kind, input, statement string) (result string) {
	defer func() {
		if recover() != nil {
			result = "panic"
		}
	}()
	settings := processortest.NewNopSettings(factory.Type())
	ctx := context.Background()
	switch kind {
	case "log":
		sink := new(consumertest.LogsSink)
		made, err := factory.CreateLogs(ctx, settings, configure("log_statements", kind, statement), sink)
		if err != nil {
			return "invalid"
		}
		data, _ := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(input))
		if made.ConsumeLogs(ctx, data) != nil {
			return "error"
		}
		changed := sink.AllLogs()[0]
		if strings.HasPrefix(statement, `set(attributes["out"], `) {
			changed = only(changed)
		}
		text, _ := (&plog.JSONMarshaler{}).MarshalLogs(changed)
		return string(text)
	case "span", "spanevent":
		sink := new(consumertest.TracesSink)
		made, err := factory.CreateTraces(ctx, settings, configure("trace_statements", kind, statement), sink)
		if err != nil {
			return "invalid"
		}
		data, _ := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(input))
		if made.ConsumeTraces(ctx, data) != nil {
			return "error"
		}
		text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(sink.AllTraces()[0])
		return string(text)
	default:
		sink := new(consumertest.MetricsSink)
		made, err := factory.CreateMetrics(ctx, settings, configure("metric_statements", kind, statement), sink)
		if err != nil {
			return "invalid"
		}
		data, _ := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics([]byte(input))
		if made.ConsumeMetrics(ctx, data) != nil {
			return "error"
		}
		text, _ := (&pmetric.JSONMarshaler{}).MarshalMetrics(sink.AllMetrics()[0])
		return string(text)
	}
}

// only returns a record whose body is the attribute "out", so that the rows stay short.
func only(logs plog.Logs) plog.Logs {
	record := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	short := plog.NewLogs()
	body := short.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body()
	if out, ok := record.Attributes().Get("out"); ok {
		out.CopyTo(body)
	}
	return short
}

func pick(random *rand.Rand, values []string) string {
	return values[random.Intn(len(values))]
}

// fill replaces each placeholder by a random expression of its kind.
func fill(random *rand.Rand, template string, pools map[string][]string) string {
	return placeholder.ReplaceAllStringFunc(template, func(found string) string {
		if pool, known := pools[strings.Trim(found, "<>")]; known {
			return pick(random, pool)
		}
		return found
	})
}

func main() {
	random := rand.New(rand.NewSource(1))
	kinds := map[string][]string{}
	inputs := map[string][]string{}
	lines, err := os.ReadFile("inputs.txt")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		kind, input, _ := strings.Cut(line, " ")
		inputs[kind] = append(inputs[kind], input)
		fmt.Printf("input %s %d %s\n", kind, len(inputs[kind])-1, input)
	}
	templates, err := os.ReadFile("statements.txt")
	if err != nil {
		panic(err)
	}
	pools := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(templates)), "\n") {
		kind, template, _ := strings.Cut(line, " ")
		if strings.HasPrefix(kind, "#") {
			pools[kind[1:]] = append(pools[kind[1:]], template)
		} else {
			kinds[kind] = append(kinds[kind], template)
		}
	}
	for _, kind := range []string{"log", "span", "spanevent", "metric", "datapoint"} {
		data := kind
		if kind == "spanevent" {
			data = "span"
		}
		if kind == "datapoint" {
			data = "metric"
		}
		for _, template := range kinds[kind] {
			repeat := 1
			if strings.Contains(template, "<") {
				repeat = 12
			}
			seen := map[string]bool{}
			for range repeat {
				statement := fill(random, template, pools)
				for range 2 {
					at := random.Intn(len(inputs[data]))
					row := fmt.Sprintf("%s %d %s", kind, at, statement)
					if seen[row] {
						continue
					}
					seen[row] = true
					// The Collector cuts characters; a text of OTLP is UTF-8.
					if result := run(kind, inputs[data][at], statement); utf8.ValidString(result) {
						fmt.Printf("%s\t%s\n", row, result)
					}
				}
			}
		}
	}
}
