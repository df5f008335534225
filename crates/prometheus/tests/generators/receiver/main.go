// Runs the Collector's receiver on the pages of each case, and writes its OTLP as JSON lines: one line for each scrape.
// The time of scrape N becomes N seconds, and the duration of scrapes 0. Argument: the directory of the cases.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"gopkg.in/yaml.v3"
)

var types = map[string]string{
	".txt": "text/plain; version=0.0.4; charset=utf-8",
	".om":  "application/openmetrics-text; version=1.0.0; charset=utf-8",
	".pb":  "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
}

func main() {
	root := os.Args[1]
	writeProtobuf(filepath.Join(root, "protobuf"))
	cases, err := os.ReadDir(root)
	check(err)
	for _, entry := range cases {
		run(filepath.Join(root, entry.Name()))
	}
}

func run(directory string) {
	pages, err := filepath.Glob(filepath.Join(directory, "[0-9].*"))
	check(err)
	var next atomic.Int32
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		at := int(next.Add(1)) - 1
		if at >= len(pages) {
			response.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		page, err := os.ReadFile(pages[at])
		check(err)
		response.Header().Set("Content-Type", types[filepath.Ext(pages[at])])
		_, _ = response.Write(page)
	}))
	defer server.Close()
	text, err := os.ReadFile(filepath.Join(directory, "config.yaml"))
	check(err)
	text = bytes.ReplaceAll(text, []byte("TARGET"), []byte(strings.TrimPrefix(server.URL, "http://")))
	var tree map[string]any
	check(yaml.Unmarshal(text, &tree))
	factory := prometheusreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	check(confmap.NewFromStringMap(tree).Unmarshal(config))
	check(config.(*prometheusreceiver.Config).PrometheusConfig.Validate())
	marshaler := pmetric.JSONMarshaler{}
	var out bytes.Buffer
	scrapes := 0
	sink, err := consumer.NewMetrics(func(_ context.Context, metrics pmetric.Metrics) error {
		if scrapes == len(pages) {
			return nil
		}
		scrapes++
		normalize(metrics, int64(scrapes))
		line, err := marshaler.MarshalMetrics(metrics)
		check(err)
		out.Write(line)
		out.WriteByte('\n')
		if scrapes == len(pages) {
			close(done)
		}
		return nil
	})
	check(err)
	receiver, err := factory.CreateMetrics(context.Background(), receivertest.NewNopSettings(factory.Type()), config, sink)
	check(err)
	check(receiver.Start(context.Background(), componenttest.NewNopHost()))
	<-done
	check(receiver.Shutdown(context.Background()))
	check(os.WriteFile(filepath.Join(directory, "expected.jsonl"), out.Bytes(), 0o644))
}

// points calls visit with the time of each point and its exemplars.
func points(metrics pmetric.Metrics, visit func(metric pmetric.Metric, time pcommon.Timestamp, set func(pcommon.Timestamp), exemplars pmetric.ExemplarSlice)) {
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			scope.Scope().SetVersion("")
			for _, metric := range scope.Metrics().All() {
				none := pmetric.NewExemplarSlice()
				switch metric.Type() {
				case pmetric.MetricTypeGauge:
					for _, point := range metric.Gauge().DataPoints().All() {
						visit(metric, point.Timestamp(), point.SetTimestamp, point.Exemplars())
					}
				case pmetric.MetricTypeSum:
					for _, point := range metric.Sum().DataPoints().All() {
						visit(metric, point.Timestamp(), point.SetTimestamp, point.Exemplars())
					}
				case pmetric.MetricTypeHistogram:
					for _, point := range metric.Histogram().DataPoints().All() {
						visit(metric, point.Timestamp(), point.SetTimestamp, point.Exemplars())
					}
				case pmetric.MetricTypeExponentialHistogram:
					for _, point := range metric.ExponentialHistogram().DataPoints().All() {
						visit(metric, point.Timestamp(), point.SetTimestamp, point.Exemplars())
					}
				case pmetric.MetricTypeSummary:
					for _, point := range metric.Summary().DataPoints().All() {
						visit(metric, point.Timestamp(), point.SetTimestamp, none)
					}
				}
			}
		}
	}
}

func normalize(metrics pmetric.Metrics, number int64) {
	var scraped pcommon.Timestamp
	points(metrics, func(metric pmetric.Metric, time pcommon.Timestamp, _ func(pcommon.Timestamp), _ pmetric.ExemplarSlice) {
		if metric.Name() == "up" {
			scraped = time
		}
	})
	points(metrics, func(metric pmetric.Metric, time pcommon.Timestamp, set func(pcommon.Timestamp), exemplars pmetric.ExemplarSlice) {
		if time == scraped {
			set(pcommon.Timestamp(number * 1e9))
		}
		for _, exemplar := range exemplars.All() {
			if exemplar.Timestamp() == scraped {
				exemplar.SetTimestamp(pcommon.Timestamp(number * 1e9))
			}
		}
		if strings.HasPrefix(metric.Name(), "scrape_duration") {
			metric.Gauge().DataPoints().At(0).SetDoubleValue(0)
		}
	})
}

func writeProtobuf(directory string) {
	kind := func(kind dto.MetricType) *dto.MetricType { return &kind }
	label := func(name, value string) []*dto.LabelPair { return []*dto.LabelPair{{Name: &name, Value: &value}} }
	at := &timestamppb.Timestamp{Seconds: 1700000000, Nanos: 500000000}
	native := &dto.Histogram{
		SampleCount: proto.Uint64(12), SampleSum: proto.Float64(18.4), Schema: proto.Int32(2), ZeroThreshold: proto.Float64(0.001),
		ZeroCount: proto.Uint64(2), PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(-3), Length: proto.Uint32(2)},
			{Offset: proto.Int32(2), Length: proto.Uint32(1)}}, PositiveDelta: []int64{1, 2, -1},
		NegativeSpan: []*dto.BucketSpan{{Offset: proto.Int32(5), Length: proto.Uint32(2)}}, NegativeDelta: []int64{1, 2},
		Exemplars: []*dto.Exemplar{{Label: label("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), Value: proto.Float64(1.5), Timestamp: at}},
	}
	floats := &dto.Histogram{
		SampleCountFloat: proto.Float64(3.7), SampleSum: proto.Float64(1), Schema: proto.Int32(0), ZeroThreshold: proto.Float64(0.01),
		PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(2)}}, PositiveCount: []float64{1.2, 2.5},
	}
	classic := &dto.Histogram{SampleCount: proto.Uint64(3), SampleSum: proto.Float64(2), Bucket: []*dto.Bucket{
		{UpperBound: proto.Float64(1), CumulativeCount: proto.Uint64(2)}}}
	families := []*dto.MetricFamily{
		{Name: proto.String("requests_total"), Help: proto.String("Requests."), Type: kind(dto.MetricType_COUNTER), Metric: []*dto.Metric{
			{Label: label("code", "200"), Counter: &dto.Counter{Value: proto.Float64(7), Exemplar: &dto.Exemplar{
				Label: label("span_id", "00f067aa0ba902b7"), Value: proto.Float64(1)}}}}},
		{Name: proto.String("heap.bytes"), Unit: proto.String("bytes"), Type: kind(dto.MetricType_GAUGE), Metric: []*dto.Metric{
			{Gauge: &dto.Gauge{Value: proto.Float64(-1)}, TimestampMs: proto.Int64(1700000000123)}}},
		{Name: proto.String("native_seconds"), Help: proto.String("Native."), Type: kind(dto.MetricType_HISTOGRAM),
			Metric: []*dto.Metric{{Label: label("a", "b"), Histogram: native}}},
		{Name: proto.String("float_seconds"), Type: kind(dto.MetricType_HISTOGRAM), Metric: []*dto.Metric{{Histogram: floats}}},
		{Name: proto.String("classic_seconds"), Type: kind(dto.MetricType_HISTOGRAM), Metric: []*dto.Metric{{Histogram: classic}}},
		{Name: proto.String("size"), Type: kind(dto.MetricType_SUMMARY), Metric: []*dto.Metric{{Summary: &dto.Summary{
			SampleCount: proto.Uint64(2), SampleSum: proto.Float64(3), Quantile: []*dto.Quantile{{Quantile: proto.Float64(0.5), Value: proto.Float64(1)}}}}}},
	}
	var page, last bytes.Buffer
	for at, family := range families {
		_, err := protodelim.MarshalTo(&page, family)
		check(err)
		if at == 0 {
			_, err = protodelim.MarshalTo(&last, family)
			check(err)
		}
	}
	check(os.WriteFile(filepath.Join(directory, "1.pb"), page.Bytes(), 0o644))
	check(os.WriteFile(filepath.Join(directory, "2.pb"), last.Bytes(), 0o644))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
