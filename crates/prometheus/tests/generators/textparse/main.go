// Writes pages in Prometheus' text formats, valid ones and damaged ones, with what Prometheus' package textparse reads
// of them, as JSON lines.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

var random = rand.New(rand.NewSource(2))

func pick[T any](choices ...T) T { return choices[random.Intn(len(choices))] }

func number() string {
	if random.Intn(3) > 0 {
		return pick("0", "1", "-1.5", "1e3", "NaN", "+Inf", "7")
	}
	return pick("0", "1", "-1.5", "1e3", "NaN", "+Inf", "-Inf", "Inf", "1e999", "0x1p3", ".5", "1.", "nan", "infinity", "-nan", "+1",
		"1_000", "12345678901234567890", "", "x", "1e-7")
}

func family() string { return pick("a", "b_total", "c:d", "http_seconds", "a_bucket", "_x", "up", "a_created") }

func text() string {
	return pick("x", "", "a\\nb", "\\\\", "\\\"q\\\"", "\u00e9", "a b", "{}", "\\x", "1.0", "5", "+Inf", "0.5", "#")
}

func series(open bool) string {
	var out strings.Builder
	quoted := random.Intn(8) == 0
	if !quoted {
		out.WriteString(family())
	}
	if quoted || random.Intn(3) > 0 {
		if !open && random.Intn(10) == 0 {
			out.WriteString(" ")
		}
		out.WriteString("{")
		if quoted {
			fmt.Fprintf(&out, "\"%s\"", pick("my.metric", "x", "a\\\"b"))
			if random.Intn(2) == 0 {
				out.WriteString(",")
			}
		}
		for range random.Intn(3) {
			if random.Intn(10) == 0 {
				out.WriteString(" ")
			}
			fmt.Fprintf(&out, "%s=\"%s\"", pick("le", "quantile", "code", "\"q.l\"", "x1", "1x"), text())
			if random.Intn(6) > 0 {
				out.WriteString(",")
			}
		}
		out.WriteString("}")
	}
	return out.String()
}

func page(open bool) string {
	var out strings.Builder
	for range 1 + random.Intn(5) {
		switch random.Intn(8) {
		case 0:
			fmt.Fprintf(&out, "# HELP %s%s\n", pick(family(), "\"my.metric\""), pick(" ", "  ", "")+text())
		case 1, 2:
			fmt.Fprintf(&out, "# TYPE %s %s\n", pick(family(), "\"my.metric\""), pick("counter", "gauge", "histogram", "summary",
				"untyped", "unknown", "info", "stateset", "gaugehistogram", "Counter", ""))
		case 3:
			out.WriteString(pick("# UNIT http_seconds seconds\n", "# UNIT a seconds\n", "# comment\n", "#\n", "\n", "  \n", "# UNIT a \n",
				"#HELP a b\n", "# HELP\n", "# TYPE\ta\tgauge\n"))
		default:
			out.WriteString(series(open))
			out.WriteString(pick(" ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", " ", "  ", "\t", ""))
			out.WriteString(number())
			if random.Intn(4) == 0 {
				time := pick("1", "1.5", "-3", "1700000000000", "x", "99999999999999999999")
				if open {
					// In Go, the conversion of large numbers depends on the machine.
					time = pick("1", "1.5", "-3", "1700000000.123", "x", "1e3")
				}
				fmt.Fprintf(&out, " %s", time)
			}
			if open && random.Intn(4) == 0 || random.Intn(30) == 0 {
				fmt.Fprintf(&out, " # {%s} %s", pick("", "trace_id=\"abc\"", "a=\"b\",c=\"d\"", "\"x\"", "a=\"b\",", "a=\"b\" "), number())
				if random.Intn(2) == 0 {
					fmt.Fprintf(&out, " %s", pick("1.5", "x", "-2", "NaN"))
				}
			}
			out.WriteString(pick("\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\n", "\r\n", " \n"))
		}
	}
	if open {
		out.WriteString(pick("# EOF\n", "# EOF\n", "# EOF\n", "# EOF", "", "# EOF\n\n"))
	}
	made := out.String()
	if random.Intn(5) == 0 && len(made) > 0 {
		at := random.Intn(len(made))
		made = made[:at] + pick("", "\"", "{", "}", "=", ",", " ", "\n", "#", "\\", "1") + made[at+random.Intn(2):]
	}
	return made
}

type entry struct {
	Type   string      `json:"type"`
	Name   string      `json:"name,omitempty"`
	Text   string      `json:"text"`
	Labels [][2]string `json:"labels,omitempty"`
	Time   *int64      `json:"time,omitempty"`
	// Exemplars as text.
	Exemplars []string `json:"exemplars,omitempty"`
}

type line struct {
	Open    bool    `json:"open"`
	Page    string  `json:"page"`
	Entries []entry `json:"entries"`
	Fault   string  `json:"fault"`
}

func float(value float64) string { return fmt.Sprintf("%016x", math.Float64bits(value)) }

func read(made string, open bool) line {
	line := line{Open: open, Page: made, Entries: []entry{}}
	kind := "text/plain"
	if open {
		kind = "application/openmetrics-text"
	}
	parser, err := textparse.New([]byte(made), kind, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		panic(err)
	}
	for {
		found, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return line
		}
		if err != nil {
			line.Fault = err.Error()
			return line
		}
		switch found {
		case textparse.EntryHelp:
			name, text := parser.Help()
			line.Entries = append(line.Entries, entry{Type: "help", Name: string(name), Text: string(text)})
		case textparse.EntryType:
			name, text := parser.Type()
			line.Entries = append(line.Entries, entry{Type: "type", Name: string(name), Text: string(text)})
		case textparse.EntryUnit:
			name, text := parser.Unit()
			line.Entries = append(line.Entries, entry{Type: "unit", Name: string(name), Text: string(text)})
		case textparse.EntrySeries:
			_, time, value := parser.Series()
			var set labels.Labels
			parser.Labels(&set)
			made := entry{Type: "sample", Text: float(value)}
			if time != nil {
				at := *time
				made.Time = &at
			}
			set.Range(func(l labels.Label) { made.Labels = append(made.Labels, [2]string{l.Name, l.Value}) })
			var e exemplar.Exemplar
			for parser.Exemplar(&e) {
				made.Exemplars = append(made.Exemplars, fmt.Sprintf("%s %s %t %d", e.Labels.String(), float(e.Value), e.HasTs, e.Ts))
				e = exemplar.Exemplar{}
			}
			line.Entries = append(line.Entries, made)
		}
	}
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for written := 0; written < 3000; {
		open := random.Intn(2) == 0
		made := page(open)
		if !utf8.ValidString(made) {
			continue
		}
		if err := encoder.Encode(read(made, open)); err != nil {
			panic(err)
		}
		written++
	}
}
