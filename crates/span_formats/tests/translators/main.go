// Translates random spans by the Collector's own translators.
//
//	go run . COUNT SEED
//
// writes COUNT cases of each kind, one JSON object a line: the kind, the option parse_string_tags, the input and the
// expected output, both in base64. The Rust test beside this directory compares its own output.
//
// Cases on which the Collector's output depends on the order of a Go map, or which docs/zipkin-jaeger.md lists as a
// difference, are not generated.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/jaegertracing/jaeger-idl/model/v1"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"github.com/jaegertracing/jaeger-idl/thrift-gen/agent"
	"github.com/jaegertracing/jaeger-idl/thrift-gen/jaeger"
	"github.com/jaegertracing/jaeger-idl/thrift-gen/zipkincore"
	jaegertranslator "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/jaeger"
	zipkinthriftconverter "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/zipkin/zipkinthriftconverter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/zipkin/zipkinv1"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/translator/zipkin/zipkinv2"
	zipkinmodel "github.com/openzipkin/zipkin-go/model"
	"github.com/openzipkin/zipkin-go/proto/zipkin_proto3"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

type testCase struct {
	Kind     string `json:"kind"`
	Parse    bool   `json:"parse"`
	Input    []byte `json:"input"`
	Expected []byte `json:"expected"`
}

var random *rand.Rand

func main() {
	count, err := strconv.Atoi(os.Args[1])
	must(err)
	seed, err := strconv.ParseInt(os.Args[2], 10, 64)
	must(err)
	random = rand.New(rand.NewSource(seed))
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	makers := []func() testCase{
		v1JSON, v1Thrift, v2JSON, v2Proto, jaegerProto, jaegerThrift, agentCompact, agentBinary, renderJSON, renderProto,
	}
	for range count {
		for _, maker := range makers {
			must(encoder.Encode(maker()))
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func encoded(traces ptrace.Traces) []byte {
	bytes, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	must(err)
	return bytes
}

func chance(percent int) bool { return random.Intn(100) < percent }

func pick(from ...string) string { return from[random.Intn(len(from))] }

func text() string {
	return pick("", "a", "checkout", "GET /api/v2", "snow \u2603 man", "line\nbreak \"quoted\"", "<b>&amp;", "0", "-12", "3.25", "true",
		"false", "99999999999999999999", "1e5", "{\"a\":1}", "[1,2]")
}

func hexID(bytes int) string {
	id := make([]byte, bytes)
	random.Read(id)
	id[0] |= 1
	return hex.EncodeToString(id)
}

func address4() string {
	return fmt.Sprintf("%d.%d.%d.%d", random.Intn(256), random.Intn(256), random.Intn(256), 1+random.Intn(255))
}

func address6() string {
	return pick("2001:db8::1", "::1", "fe80::abcd:0:0:12", "::ffff:10.0.0.7", "1:2:3:4:5:6:7:8", "1:0:0:2:0:0:0:3")
}

func attributesJSON() string {
	attributes := map[string]any{}
	for range random.Intn(4) {
		attributes[pick("a", "b", "c|d", "n")] = []any{text(), random.Intn(1000), 2.5, true, nil, []int{1}}[random.Intn(6)]
	}
	bytes, err := json.Marshal(attributes)
	must(err)
	return string(bytes)
}

func annotationText() string {
	if chance(30) {
		return fmt.Sprintf("%s|%s|%d", pick("event", "", "named event"), attributesJSON(), random.Intn(5))
	}
	return pick("cache miss", "ws", "", "an annotation")
}

// Tags of a span. Tags of the resource depend on the service alone, because the Collector takes them from any span.
func zipkinTags(service, library string) map[string]string {
	tags := map[string]string{}
	for range random.Intn(6) {
		tags[pick("http.method", "http.path", "custom", "x", "y", "net.host.port", "peer")] = text()
	}
	if chance(30) {
		tags["http.status_code"] = pick("200", "404", "503", "x")
	}
	if chance(30) {
		tags["error"] = pick("true", "false", "", "a reason")
	}
	if chance(30) {
		tags["otel.status_code"] = pick("STATUS_CODE_OK", "STATUS_CODE_ERROR", "STATUS_CODE_UNSET", "Ok", "Error", "Unset", "?")
	}
	if chance(30) {
		tags["otel.status_description"] = text()
	}
	if chance(30) {
		tags["span.kind"] = pick("internal", "client", "")
	}
	if chance(20) {
		tags["w3c.tracestate"] = pick("a=1,b=2", "")
	}
	for at := range random.Intn(3) {
		tags[fmt.Sprintf("otlp.link.%d", at)] = fmt.Sprintf("%s|%s|%s|%s|%d", pick(hexID(16), ""), hexID(8),
			pick("", "k=v"), attributesJSON(), random.Intn(4))
	}
	switch service {
	case "frontend":
		tags["service.version"] = "1.2"
		tags["host.name"] = "h"
	case "function":
		tags["otlp.service.name.source"] = "faas.name"
		tags["faas.id"] = "arn:1"
	case "cloud":
		tags["cloud.resource_id"] = "r"
		tags["service.name"] = "renamed"
		tags["opencensus.starttime"] = "t"
	case "":
		tags["process.pid"] = "12"
	}
	switch library {
	case "scope":
		tags["otel.scope.name"] = library
		tags["otel.scope.version"] = "2"
	case "library":
		tags["otel.library.name"] = library
		tags["otel.library.version"] = "3"
	case "both":
		tags["otel.scope.name"] = library
		tags["otel.library.name"] = "older"
	case "version":
		tags["otel.scope.version"] = "4"
	}
	return tags
}

func zipkinEndpoint(service string) map[string]any {
	endpoint := map[string]any{}
	if service != "" || chance(50) {
		endpoint["serviceName"] = service
	}
	if chance(50) {
		endpoint["ipv4"] = address4()
	}
	if chance(30) {
		endpoint["ipv6"] = address6()
	}
	if chance(50) {
		endpoint["port"] = random.Intn(32768)
	}
	return endpoint
}

func micros() int64 { return 1_600_000_000_000_000 + random.Int63n(1_000_000_000_000) }

func v2Spans() []byte {
	spans := []any{}
	for range random.Intn(5) {
		service := pick("", "frontend", "backend", "function", "cloud")
		library := pick("", "", "scope", "library", "both", "version")
		span := map[string]any{
			"traceId": pick(hexID(16), hexID(8)),
			"id":      hexID(8),
			"tags":    zipkinTags(service, library),
		}
		if chance(70) {
			span["name"] = text()
		}
		if chance(60) {
			span["kind"] = pick("CLIENT", "SERVER", "PRODUCER", "CONSUMER", "OTHER")
		}
		if chance(80) {
			span["timestamp"] = micros()
		}
		if chance(80) {
			span["duration"] = random.Int63n(10_000_000)
		}
		if chance(50) {
			span["parentId"] = hexID(8)
		} else if chance(20) {
			span["parentId"], span["shared"] = span["id"], true
		}
		if service != "" || chance(50) {
			span["localEndpoint"] = zipkinEndpoint(service)
		}
		if chance(50) {
			span["remoteEndpoint"] = zipkinEndpoint(pick("", "db"))
		}
		annotations := []any{}
		for range random.Intn(3) {
			annotations = append(annotations, map[string]any{"timestamp": micros(), "value": annotationText()})
		}
		if len(annotations) > 0 {
			span["annotations"] = annotations
		}
		spans = append(spans, span)
	}
	bytes, err := json.Marshal(spans)
	must(err)
	return bytes
}

func v2JSON() testCase {
	input, parse := v2Spans(), chance(50)
	traces, err := zipkinv2.NewJSONTracesUnmarshaler(parse).UnmarshalTraces(input)
	must(err)
	return testCase{"ZipkinV2Json", parse, input, encoded(traces)}
}

func v2Proto() testCase {
	var models []*zipkinmodel.SpanModel
	must(json.Unmarshal(v2Spans(), &models))
	input, err := zipkin_proto3.SpanSerializer{}.Serialize(models)
	must(err)
	parse := chance(50)
	traces, err := zipkinv2.NewProtobufTracesUnmarshaler(false, parse).UnmarshalTraces(input)
	must(err)
	return testCase{"ZipkinV2Proto", parse, input, encoded(traces)}
}

func v1Key() string {
	return pick("a", "b", "lc", "error", "http.status_message", "census.status_code", "census.status_description",
		"opencensus.status_description", "otel.status_code", "otel.status_description", "http.status_code")
}

func v1JSON() testCase {
	spans := []any{}
	for range random.Intn(4) {
		span := map[string]any{"traceId": pick(hexID(16), hexID(8)), "id": hexID(8), "name": text()}
		if chance(50) {
			span["parentId"] = hexID(8)
		}
		if chance(70) {
			span["timestamp"] = micros()
			span["duration"] = random.Int63n(10_000_000)
		}
		annotations := []any{}
		for range random.Intn(4) {
			annotation := map[string]any{"timestamp": micros(), "value": pick("cs", "cr", "ms", "mr", "ss", "sr", "note", "")}
			if chance(70) {
				annotation["endpoint"] = zipkinEndpoint(pick("", "frontend", "backend"))
			}
			annotations = append(annotations, annotation)
		}
		span["annotations"] = annotations
		binaries := []any{}
		for range random.Intn(6) {
			binary := map[string]any{"key": v1Key(), "value": pick(text(), "1", "2", "404", "503")}
			if chance(40) {
				binary["endpoint"] = zipkinEndpoint(pick("", "named"))
			}
			binaries = append(binaries, binary)
		}
		span["binaryAnnotations"] = binaries
		spans = append(spans, span)
	}
	input, err := json.Marshal(spans)
	must(err)
	parse := chance(50)
	traces, err := zipkinv1.NewJSONTracesUnmarshaler(parse).UnmarshalTraces(input)
	must(err)
	return testCase{"ZipkinV1Json", parse, input, encoded(traces)}
}

func thriftEndpoint() *zipkincore.Endpoint {
	endpoint := &zipkincore.Endpoint{ServiceName: pick("", "frontend", "backend"), Port: int16(random.Intn(32768))}
	if chance(60) {
		endpoint.Ipv4 = random.Int31() - random.Int31()
	}
	if chance(30) {
		endpoint.Ipv6 = make([]byte, 16)
		random.Read(endpoint.Ipv6)
	}
	return endpoint
}

func v1Thrift() testCase {
	var spans []*zipkincore.Span
	for range random.Intn(4) {
		span := &zipkincore.Span{TraceID: random.Int63(), ID: random.Int63(), Name: text(), Debug: chance(50)}
		if chance(50) {
			id := random.Int63()
			span.ParentID = &id
		}
		if chance(50) {
			high := random.Int63()
			span.TraceIDHigh = &high
		}
		if chance(70) {
			start, duration := micros(), random.Int63n(10_000_000)
			span.Timestamp = &start
			if chance(70) {
				span.Duration = &duration
			}
		}
		for range random.Intn(4) {
			annotation := &zipkincore.Annotation{Timestamp: micros(), Value: pick("cs", "cr", "ms", "mr", "ss", "sr", "note", "")}
			if chance(70) {
				annotation.Host = thriftEndpoint()
			}
			span.Annotations = append(span.Annotations, annotation)
		}
		for range random.Intn(5) {
			kind := zipkincore.AnnotationType(random.Intn(8))
			value := make([]byte, random.Intn(10))
			random.Read(value)
			switch {
			case kind == zipkincore.AnnotationType_STRING:
				value = []byte(pick(text(), "2", "404"))
			case kind == zipkincore.AnnotationType_BOOL && chance(50):
				value = []byte{1}
			case kind == zipkincore.AnnotationType_I32 && chance(50):
				value = binary.BigEndian.AppendUint32(nil, uint32(100+random.Intn(500)))
			}
			key := v1Key()
			if key == "lc" && kind != zipkincore.AnnotationType_STRING {
				key = "not lc"
			}
			binary := &zipkincore.BinaryAnnotation{Key: key, Value: value, AnnotationType: kind}
			if chance(40) {
				binary.Host = thriftEndpoint()
			}
			span.BinaryAnnotations = append(span.BinaryAnnotations, binary)
		}
		spans = append(spans, span)
	}
	input, err := zipkinthriftconverter.SerializeThrift(context.Background(), spans)
	must(err)
	traces, err := zipkinv1.NewThriftTracesUnmarshaler().UnmarshalTraces(input)
	must(err)
	return testCase{"ZipkinV1Thrift", false, input, encoded(traces)}
}

func jaegerKey() string {
	return pick("a", "b", "c", "d", "event", "hostname", "host.name", "jaeger.version", "http.status_message", "w3c.tracestate", "x")
}

func specialTags() []jaeger.Tag {
	var tags []jaeger.Tag
	str := func(key, value string) {
		tags = append(tags, jaeger.Tag{Key: key, VType: jaeger.TagType_STRING, VStr: &value})
	}
	if chance(40) {
		value := chance(60)
		tags = append(tags, jaeger.Tag{Key: "error", VType: jaeger.TagType_BOOL, VBool: &value})
	} else if chance(10) {
		str("error", pick("true", "false"))
	}
	if chance(30) {
		str("otel.status_code", pick("OK", "ok", "ERROR", "Error", "UNSET", ""))
	}
	if chance(30) {
		str("otel.status_description", text())
	}
	if chance(50) {
		str("span.kind", pick("client", "server", "producer", "consumer", "internal", "other"))
	}
	if chance(40) {
		key := pick("http.status_code", "http.response.status_code")
		if code := []int64{200, 302, 399, 404, 500, 99}[random.Intn(6)]; chance(70) {
			tags = append(tags, jaeger.Tag{Key: key, VType: jaeger.TagType_LONG, VLong: &code})
		} else {
			str(key, strconv.FormatInt(code, 10))
		}
	}
	if chance(30) {
		str("otel.scope.name", pick("lib", ""))
	}
	if chance(20) {
		str("otel.scope.version", "1")
	}
	return tags
}

func randomTag() jaeger.Tag {
	tag := jaeger.Tag{Key: jaegerKey(), VType: jaeger.TagType(random.Intn(6))}
	switch tag.VType {
	case jaeger.TagType_STRING:
		value := text()
		tag.VStr = &value
	case jaeger.TagType_DOUBLE:
		value := random.NormFloat64()
		tag.VDouble = &value
	case jaeger.TagType_BOOL:
		value := chance(50)
		tag.VBool = &value
	case jaeger.TagType_LONG:
		value := random.Int63() - random.Int63()
		tag.VLong = &value
	case jaeger.TagType_BINARY:
		tag.VBinary = make([]byte, random.Intn(5))
		random.Read(tag.VBinary)
	}
	return tag
}

func thriftTags(most int) []*jaeger.Tag {
	tags := []*jaeger.Tag{}
	for range random.Intn(most + 1) {
		tag := randomTag()
		tags = append(tags, &tag)
	}
	return tags
}

func thriftProcess() *jaeger.Process {
	process := &jaeger.Process{ServiceName: pick("", "frontend", "backend", "OTLPResourceNoServiceName")}
	if chance(70) {
		process.Tags = thriftTags(4)
	}
	return process
}

func thriftBatch() *jaeger.Batch {
	batch := &jaeger.Batch{Process: thriftProcess(), Spans: []*jaeger.Span{}}
	for range random.Intn(4) {
		span := &jaeger.Span{TraceIdLow: random.Int63(), SpanId: random.Int63(), OperationName: text(), Flags: int32(random.Intn(4)),
			StartTime: micros(), Duration: random.Int63n(10_000_000)}
		if chance(50) {
			span.TraceIdHigh = random.Int63()
		}
		if chance(40) {
			span.ParentSpanId = random.Int63()
		}
		for range random.Intn(3) {
			reference := &jaeger.SpanRef{RefType: jaeger.SpanRefType(random.Intn(2)), TraceIdLow: span.TraceIdLow,
				TraceIdHigh: span.TraceIdHigh, SpanId: random.Int63()}
			if chance(30) {
				reference.TraceIdLow = random.Int63()
			}
			if chance(30) {
				reference.SpanId = span.ParentSpanId
			}
			span.References = append(span.References, reference)
		}
		span.Tags = thriftTags(5)
		for _, tag := range specialTags() {
			span.Tags = append(span.Tags, &tag)
		}
		for range random.Intn(3) {
			span.Logs = append(span.Logs, &jaeger.Log{Timestamp: micros(), Fields: thriftTags(3)})
		}
		if chance(5) {
			span = &jaeger.Span{}
		}
		batch.Spans = append(batch.Spans, span)
	}
	return batch
}

func thriftExpected(batch *jaeger.Batch) []byte {
	traces, err := jaegertranslator.ThriftToTraces(batch)
	must(err)
	return encoded(traces)
}

func jaegerThrift() testCase {
	batch := thriftBatch()
	buffer := thrift.NewTMemoryBuffer()
	must(batch.Write(context.Background(), thrift.NewTBinaryProtocolConf(buffer, nil)))
	return testCase{"JaegerThrift", false, buffer.Bytes(), thriftExpected(batch)}
}

func agentMessage(batch *jaeger.Batch, protocol thrift.TProtocol) {
	ctx := context.Background()
	must(protocol.WriteMessageBegin(ctx, "emitBatch", thrift.ONEWAY, random.Int31()))
	must((&agent.AgentEmitBatchArgs{Batch: batch}).Write(ctx, protocol))
	must(protocol.WriteMessageEnd(ctx))
	must(protocol.Flush(ctx))
}

func agentCompact() testCase {
	batch, buffer := thriftBatch(), thrift.NewTMemoryBuffer()
	agentMessage(batch, thrift.NewTCompactProtocolConf(buffer, nil))
	return testCase{"JaegerAgentCompact", false, buffer.Bytes(), thriftExpected(batch)}
}

func agentBinary() testCase {
	batch, buffer := thriftBatch(), thrift.NewTMemoryBuffer()
	strict := chance(50)
	agentMessage(batch, thrift.NewTBinaryProtocolConf(buffer, &thrift.TConfiguration{TBinaryStrictWrite: &strict}))
	return testCase{"JaegerAgentBinary", false, buffer.Bytes(), thriftExpected(batch)}
}

func protoTags(tags []*jaeger.Tag) []model.KeyValue {
	var all []model.KeyValue
	for _, tag := range tags {
		switch tag.VType {
		case jaeger.TagType_STRING:
			all = append(all, model.String(tag.Key, *tag.VStr))
		case jaeger.TagType_DOUBLE:
			all = append(all, model.Float64(tag.Key, *tag.VDouble))
		case jaeger.TagType_BOOL:
			all = append(all, model.Bool(tag.Key, *tag.VBool))
		case jaeger.TagType_LONG:
			all = append(all, model.Int64(tag.Key, *tag.VLong))
		case jaeger.TagType_BINARY:
			all = append(all, model.Binary(tag.Key, tag.VBinary))
		default:
			all = append(all, model.KeyValue{Key: tag.Key, VType: 9})
		}
	}
	return all
}

func protoProcess() *model.Process {
	process := thriftProcess()
	// The checksum of a process ends at a tag of an unknown type.
	return &model.Process{ServiceName: process.ServiceName, Tags: protoTags(process.Tags)}
}

func jaegerProto() testCase {
	thriftSpans := thriftBatch().Spans
	batch := model.Batch{}
	if chance(90) {
		batch.Process = protoProcess()
	}
	for _, from := range thriftSpans {
		if from.TraceIdLow == 0 {
			continue
		}
		trace := model.NewTraceID(uint64(from.TraceIdHigh), uint64(from.TraceIdLow))
		span := &model.Span{TraceID: trace, SpanID: model.SpanID(from.SpanId), OperationName: from.OperationName,
			Flags: model.Flags(from.Flags), StartTime: time.Unix(0, from.StartTime*1000+random.Int63n(1000)).UTC(),
			Duration: time.Duration(from.Duration*1000 + random.Int63n(1000)), Tags: protoTags(from.Tags)}
		for _, reference := range from.References {
			span.References = append(span.References, model.SpanRef{RefType: model.SpanRefType(reference.RefType),
				TraceID: model.NewTraceID(uint64(reference.TraceIdHigh), uint64(reference.TraceIdLow)),
				SpanID:  model.SpanID(reference.SpanId)})
		}
		for _, log := range from.Logs {
			span.Logs = append(span.Logs, model.Log{Timestamp: time.Unix(0, log.Timestamp*1000).UTC(), Fields: protoTags(log.Fields)})
		}
		if chance(20) {
			span.Process = protoProcess()
		}
		batch.Spans = append(batch.Spans, span)
	}
	input, err := (&api_v2.PostSpansRequest{Batch: batch}).Marshal()
	must(err)
	traces, err := jaegertranslator.ProtoToTraces([]*model.Batch{&batch})
	must(err)
	return testCase{"JaegerProto", false, input, encoded(traces)}
}

func setValue(value pcommon.Value, depth int) {
	switch random.Intn(8) {
	case 0:
		value.SetInt(random.Int63() - random.Int63())
	case 1:
		value.SetDouble([]float64{0.5, 1e21, -2.5e-7, 100, math.Pi}[random.Intn(5)])
	case 2:
		value.SetBool(chance(50))
	case 3:
		value.SetEmptyBytes().FromRaw([]byte{1, 2, byte(random.Intn(256))})
	case 4:
		list := value.SetEmptySlice()
		for range random.Intn(3) {
			if depth < 2 {
				setValue(list.AppendEmpty(), depth+1)
			}
		}
	case 5:
		entries := value.SetEmptyMap()
		for range random.Intn(3) {
			if depth < 2 {
				setValue(entries.PutEmpty(pick("k", "a", "z<")), depth+1)
			}
		}
	default:
		value.SetStr(text())
	}
}

func setAttributes(attributes pcommon.Map, keys ...string) {
	for range random.Intn(5) {
		setValue(attributes.PutEmpty(pick(keys...)), 0)
	}
}

func traces() ptrace.Traces {
	all := ptrace.NewTraces()
	for range 1 + random.Intn(2) {
		resource := all.ResourceSpans().AppendEmpty()
		attributes := resource.Resource().Attributes()
		setAttributes(attributes, "r", "host.id", "r2")
		// Without a service, the Collector writes a name of its own.
		attributes.PutStr(pick("service.name", "faas.name", "k8s.deployment.name", "process.executable.name"), "Shop")
		if chance(20) {
			attributes.PutStr(pick("faas.id", "cloud.resource_id"), "arn")
		}
		// The Collector lets the tags of a scope leak into later scopes.
		scope := resource.ScopeSpans().AppendEmpty()
		if chance(50) {
			scope.Scope().SetName("lib")
			scope.Scope().SetVersion(pick("", "2"))
			setAttributes(scope.Scope().Attributes(), "s", "r")
		}
		for range random.Intn(4) {
			span := scope.Spans().AppendEmpty()
			var trace [16]byte
			var id [8]byte
			random.Read(trace[:])
			if chance(30) {
				copy(trace[:8], make([]byte, 8))
			}
			random.Read(id[:])
			span.SetTraceID(trace)
			span.SetSpanID(id)
			if chance(50) {
				random.Read(id[:])
				span.SetParentSpanID(id)
			}
			span.SetName(pick("GET", "Upper Case", "\u00c4rger"))
			span.SetKind(ptrace.SpanKind(random.Intn(6)))
			start := uint64(micros())*1000 + uint64(random.Intn(1000))
			if chance(90) {
				span.SetStartTimestamp(pcommon.Timestamp(start))
				span.SetEndTimestamp(pcommon.Timestamp(start + []uint64{0, 1, 999, 1500, 1499, 123456789}[random.Intn(6)]))
			}
			span.TraceState().FromRaw(pick("", "", "k=v"))
			setAttributes(span.Attributes(), "a", "r", "error", "http.response.status_code")
			if chance(30) {
				span.Attributes().PutStr("network.peer.address", pick(address4(), address6()))
			}
			if chance(30) {
				span.Attributes().PutStr("network.local.address", pick(address4(), address6()))
			}
			if chance(30) {
				span.Attributes().PutStr(pick("service.peer.name", "peer.service"), "Db")
				span.Attributes().PutInt("net.peer.port", int64(random.Intn(65536)))
			}
			if chance(30) {
				span.Attributes().PutInt("net.host.port", int64(random.Intn(65536)))
			}
			span.Status().SetCode(ptrace.StatusCode(random.Intn(3)))
			span.Status().SetMessage(pick("", "failed"))
			for range random.Intn(3) {
				event := span.Events().AppendEmpty()
				event.SetTimestamp(pcommon.Timestamp(start))
				event.SetName(pick("e", "event two"))
				setAttributes(event.Attributes(), "ea", "eb")
				event.SetDroppedAttributesCount(uint32(random.Intn(2)))
			}
			for range random.Intn(2) {
				link := span.Links().AppendEmpty()
				link.SetTraceID(trace)
				link.SetSpanID(id)
				link.TraceState().FromRaw(pick("", "l=1"))
				setAttributes(link.Attributes(), "la", "lb")
				link.SetDroppedAttributesCount(uint32(random.Intn(2)))
			}
		}
	}
	return all
}

func renderJSON() testCase {
	all := traces()
	expected, err := zipkinv2.NewJSONTracesMarshaler().MarshalTraces(all)
	must(err)
	return testCase{"render-json", false, encoded(all), expected}
}

func renderProto() testCase {
	all := traces()
	expected, err := zipkinv2.NewProtobufTracesMarshaler().MarshalTraces(all)
	must(err)
	return testCase{"render-proto", false, encoded(all), expected}
}
