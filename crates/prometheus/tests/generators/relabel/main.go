// Writes random relabelling rules, label sets, and the results of Prometheus' package relabel, as JSON lines.
package main

import (
	"encoding/json"
	"math/rand"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

var random = rand.New(rand.NewSource(1))

func pick[T any](choices ...T) T { return choices[random.Intn(len(choices))] }

func name() string {
	return pick("__name__", "job", "instance", "a", "b", "c", "ab", "__meta_x", "__tmp", "le", "A_1", "caf\u00e9", "x.y")
}

func value() string {
	return pick("", "a", "b", "foo", "foo-bar", "10.0.0.1:9090", "a;b", "Foo\nbar", "\u00c4pfel", "$1", "x${1}y", "0",
		"\u0130stanbul", "stra\u00dfe", "FOO", "\u03a3\u0391\u03a3", "1a")
}

func regex() string {
	return pick("", "(.*)", "(.+)", "a", "a|b", "f(o+)(.*)", "(?P<name>[^:]+):(\\d+)", "[[:alpha:]]+", "__meta_(.+)", "\\w+",
		"(a)|(b)", "(?i)FOO", ".*", "foo.bar", "([^;]*);(.*)", "^a$", "\\d+\\.(\\d+)\\..*", "(.)(.*)", "a{1,3}", "x{", "[a-c]+",
		"(?-s:.*)", "\\pL+", "(__)?(.*)", "\\Qfoo\\E.*")
}

func template() string {
	return pick("", "$1", "${1}", "$2-$1", "$1x", "${1}x", "${name}:80", "$$", "$", "${", "${1", "plain", "$0", "$01", "a$", "$name_x",
		"${2}_$1", "\u00e9$1", "$-1", "${-}")
}

func target() string {
	return pick("", "a", "new", "__address__", "${1}", "x_$1", "$1", "caf\u00e9", "1a", "$2", "job")
}

type rule struct {
	SourceLabels []string `json:"source_labels"`
	Separator    string   `json:"separator"`
	Regex        string   `json:"regex"`
	Modulus      uint64   `json:"modulus"`
	TargetLabel  string   `json:"target_label"`
	Replacement  string   `json:"replacement"`
	Action       string   `json:"action"`
	UTF8         bool     `json:"utf8"`
}

type line struct {
	Labels map[string]string  `json:"labels"`
	Rules  []rule             `json:"rules"`
	Valid  bool               `json:"valid"`
	Keep   bool               `json:"keep"`
	Result *map[string]string `json:"result,omitempty"`
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for range 3000 {
		line := line{Labels: map[string]string{}, Valid: true}
		for range random.Intn(5) {
			if value := value(); value != "" {
				line.Labels[name()] = value
			}
		}
		var configs []*relabel.Config
		for range 1 + random.Intn(2) {
			config := relabel.DefaultRelabelConfig
			config.Action = pick(relabel.Replace, relabel.Replace, relabel.Replace, relabel.Keep, relabel.Drop, relabel.KeepEqual,
				relabel.DropEqual, relabel.HashMod, relabel.LabelMap, relabel.LabelDrop, relabel.LabelKeep, relabel.Lowercase,
				relabel.Uppercase)
			for range random.Intn(3) {
				config.SourceLabels = append(config.SourceLabels, model.LabelName(name()))
			}
			plain := config.Action == relabel.KeepEqual || config.Action == relabel.DropEqual
			names := config.Action == relabel.LabelDrop || config.Action == relabel.LabelKeep
			rare := random.Intn(20) == 0
			pattern := "(.*)"
			if (!plain || rare) && random.Intn(8) > 0 {
				pattern = regex()
				config.Regex = relabel.MustNewRegexp(pattern)
			}
			if names && !rare {
				config.SourceLabels = nil
			}
			if !names || rare {
				config.TargetLabel = target()
				if random.Intn(3) == 0 && !plain {
					config.Separator = pick("", "-", ";;")
				}
			}
			if config.Action == relabel.Replace || config.Action == relabel.LabelMap || rare {
				config.Replacement = template()
			}
			if config.Action == relabel.HashMod || rare {
				config.Modulus = pick[uint64](0, 1, 7, 1000, 1<<63)
			}
			utf8 := random.Intn(4) > 0
			scheme := model.LegacyValidation
			if utf8 {
				scheme = model.UTF8Validation
			}
			if err := config.Validate(scheme); err != nil {
				line.Valid = false
			}
			made := rule{Separator: config.Separator, Regex: pattern, Modulus: config.Modulus, TargetLabel: config.TargetLabel,
				Replacement: config.Replacement, Action: string(config.Action), UTF8: utf8, SourceLabels: []string{}}
			for _, source := range config.SourceLabels {
				made.SourceLabels = append(made.SourceLabels, string(source))
			}
			line.Rules = append(line.Rules, made)
			configs = append(configs, &config)
		}
		if line.Valid {
			builder := labels.NewBuilder(labels.FromMap(line.Labels))
			line.Keep = relabel.ProcessBuilder(builder, configs...)
			if line.Keep {
				result := builder.Labels().Map()
				line.Result = &result
			}
		}
		if err := encoder.Encode(line); err != nil {
			panic(err)
		}
	}
}
