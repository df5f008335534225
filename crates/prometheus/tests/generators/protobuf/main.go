// Writes pages in Prometheus' protobuf format with what Prometheus' package textparse reads of them, as JSON lines.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var random = rand.New(rand.NewSource(3))

func pick[T any](choices ...T) T { return choices[random.Intn(len(choices))] }

func chance(of int) bool { return random.Intn(of) == 0 }

func number() float64 { return pick(0, 1, -1.5, 1e300, math.NaN(), math.Inf(1), 0.1) }

func created() *timestamppb.Timestamp {
	if chance(2) {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: 1700000000, Nanos: pick[int32](0, 5000000, 999999999)}
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func example() *dto.Exemplar {
	if chance(2) {
		return nil
	}
	return &dto.Exemplar{Value: proto.Float64(number()), Timestamp: created(), Label: []*dto.LabelPair{pair("trace_id", "ab")}}
}

func spans(buckets int) (spans []*dto.BucketSpan) {
	for buckets > 0 {
		length := 1 + random.Intn(buckets)
		spans = append(spans, &dto.BucketSpan{Offset: proto.Int32(int32(random.Intn(5))), Length: proto.Uint32(uint32(length))})
		buckets -= length
	}
	if len(spans) > 0 && chance(2) {
		spans[0].Offset = proto.Int32(int32(random.Intn(100) - 50))
	}
	if chance(40) {
		spans = append(spans, &dto.BucketSpan{Offset: proto.Int32(1), Length: proto.Uint32(1)})
	}
	return spans
}

func deltas(buckets int) (deltas []int64) {
	var count int64
	for range buckets {
		next := int64(random.Intn(4))
		deltas = append(deltas, next-count)
		count = next
	}
	return deltas
}

func floats(buckets int) (floats []float64) {
	for range buckets {
		floats = append(floats, float64(random.Intn(4))/2*2)
	}
	return floats
}

func distribution() *dto.Histogram {
	made := &dto.Histogram{SampleSum: proto.Float64(number()), CreatedTimestamp: created()}
	float := chance(4)
	if float {
		made.SampleCountFloat = proto.Float64(5)
	} else {
		made.SampleCount = proto.Uint64(5)
	}
	if chance(2) {
		for at := range random.Intn(4) {
			bucket := &dto.Bucket{UpperBound: proto.Float64(float64(at)), Exemplar: example()}
			if float {
				bucket.CumulativeCountFloat = proto.Float64(float64(at))
			} else {
				bucket.CumulativeCount = proto.Uint64(uint64(at))
			}
			made.Bucket = append(made.Bucket, bucket)
		}
		if chance(3) {
			made.Bucket = append(made.Bucket, &dto.Bucket{UpperBound: proto.Float64(math.Inf(1)), CumulativeCount: proto.Uint64(5)})
		}
	}
	if chance(2) {
		made.Schema = proto.Int32(int32(random.Intn(13) - 4))
		made.ZeroThreshold = proto.Float64(1e-128)
		positive, negative := random.Intn(6), random.Intn(3)
		made.PositiveSpan, made.NegativeSpan = spans(positive), spans(negative)
		if float {
			made.ZeroCountFloat = proto.Float64(2)
			made.PositiveCount, made.NegativeCount = floats(positive), floats(negative)
		} else {
			made.ZeroCount = proto.Uint64(2)
			made.PositiveDelta, made.NegativeDelta = deltas(positive), deltas(negative)
		}
		if chance(2) {
			made.Exemplars = []*dto.Exemplar{{Value: proto.Float64(1), Timestamp: created()}, {Value: proto.Float64(2), Timestamp: created()}}
		}
	}
	return made
}

func page() []byte {
	var out bytes.Buffer
	for range 1 + random.Intn(3) {
		kind := pick(dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_SUMMARY, dto.MetricType_UNTYPED, dto.MetricType_HISTOGRAM,
			dto.MetricType_HISTOGRAM, dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM)
		family := &dto.MetricFamily{Name: proto.String(pick("a", "b_total", "my.metric")), Help: proto.String(pick("", "help")), Type: &kind}
		if chance(3) {
			family.Unit = proto.String("seconds")
		}
		for range random.Intn(3) {
			metric := &dto.Metric{Label: []*dto.LabelPair{pair("z", pick("1", "\u00e9", "")), pair("a", "2")}}
			if chance(3) {
				metric.TimestampMs = proto.Int64(pick[int64](0, 5, -7, 1700000000000))
			}
			switch kind {
			case dto.MetricType_COUNTER:
				metric.Counter = &dto.Counter{Value: proto.Float64(number()), Exemplar: example(), CreatedTimestamp: created()}
			case dto.MetricType_GAUGE:
				metric.Gauge = &dto.Gauge{Value: proto.Float64(number())}
			case dto.MetricType_UNTYPED:
				metric.Untyped = &dto.Untyped{Value: proto.Float64(number())}
			case dto.MetricType_SUMMARY:
				metric.Summary = &dto.Summary{SampleCount: proto.Uint64(3), SampleSum: proto.Float64(number()), CreatedTimestamp: created()}
				for at := range random.Intn(3) {
					metric.Summary.Quantile = append(metric.Summary.Quantile, &dto.Quantile{Quantile: proto.Float64(float64(at) / 2), Value: proto.Float64(number())})
				}
			default:
				metric.Histogram = distribution()
			}
			family.Metric = append(family.Metric, metric)
		}
		if _, err := protodelim.MarshalTo(&out, family); err != nil {
			panic(err)
		}
	}
	made := out.Bytes()
	if chance(20) {
		made = made[:random.Intn(len(made))]
	}
	return made
}

type entry struct {
	Type      string      `json:"type"`
	Text      string      `json:"text"`
	Labels    [][2]string `json:"labels,omitempty"`
	Time      *int64      `json:"time,omitempty"`
	Start     int64       `json:"start,omitempty"`
	Exemplars []string    `json:"exemplars,omitempty"`
}

type line struct {
	Native  bool    `json:"native"`
	Classic bool    `json:"classic"`
	Page    string  `json:"page"`
	Entries []entry `json:"entries"`
	Fault   string  `json:"fault"`
}

func float(value float64) string {
	if math.IsNaN(value) {
		return "NaN"
	}
	return fmt.Sprintf("%016x", math.Float64bits(value))
}

// side writes the buckets that are not empty: index and count.
func side(iterator histogram.BucketIterator[float64]) string {
	text := ""
	for iterator.Next() {
		if bucket := iterator.At(); bucket.Count >= 1 {
			text += fmt.Sprintf(" %d:%d", bucket.Index, uint64(bucket.Count))
		}
	}
	return text
}

func native(h *histogram.FloatHistogram) string {
	return fmt.Sprintf("%d %d %s %s %d |%s |%s", h.Schema, uint64(h.Count), float(h.Sum), float(h.ZeroThreshold), uint64(h.ZeroCount),
		side(h.PositiveBucketIterator()), side(h.NegativeBucketIterator()))
}

func read(made []byte) line {
	line := line{Native: chance(2), Classic: chance(2), Page: base64.StdEncoding.EncodeToString(made), Entries: []entry{}}
	parser, err := textparse.New(made, "application/vnd.google.protobuf", labels.NewSymbolTable(), textparse.ParserOptions{
		IgnoreNativeHistograms: !line.Native, KeepClassicOnClassicAndNativeHistograms: line.Classic,
	})
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
		made := entry{Type: "sample"}
		var time *int64
		switch found {
		case textparse.EntrySeries:
			var value float64
			_, time, value = parser.Series()
			made.Text = float(value)
		case textparse.EntryHistogram:
			made.Type = "histogram"
			var h *histogram.Histogram
			var fh *histogram.FloatHistogram
			_, time, h, fh = parser.Histogram()
			if fh == nil {
				fh = h.ToFloat(nil)
			}
			made.Text = native(fh)
		default:
			continue
		}
		if time != nil {
			at := *time
			made.Time = &at
		}
		made.Start = parser.StartTimestamp()
		var set labels.Labels
		parser.Labels(&set)
		set.Range(func(l labels.Label) { made.Labels = append(made.Labels, [2]string{l.Name, l.Value}) })
		var e exemplar.Exemplar
		for parser.Exemplar(&e) {
			if found == textparse.EntrySeries || e.HasTs {
				made.Exemplars = append(made.Exemplars, fmt.Sprintf("%s %s %t %d", e.Labels.String(), float(e.Value), e.HasTs, e.Ts))
			}
			e = exemplar.Exemplar{}
		}
		line.Entries = append(line.Entries, made)
	}
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for range 700 {
		if err := encoder.Encode(read(page())); err != nil {
			panic(err)
		}
	}
}
