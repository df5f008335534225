// Sends spans with Jaeger's client to a collector: over UDP in Thrift's compact protocol, and over HTTP.
//
//	go run . ADDRESS URL
package main

import (
	"fmt"
	"os"

	"github.com/opentracing/opentracing-go"
	"github.com/opentracing/opentracing-go/ext"
	"github.com/opentracing/opentracing-go/log"
	"github.com/uber/jaeger-client-go"
	"github.com/uber/jaeger-client-go/transport"
)

func main() {
	udp, err := jaeger.NewUDPTransport(os.Args[1], 0)
	if err != nil {
		panic(err)
	}
	send("go-udp", udp)
	send("go-http", transport.NewHTTPTransport(os.Args[2]))
}

func send(service string, sender jaeger.Transport) {
	reporter := jaeger.NewRemoteReporter(sender, jaeger.ReporterOptions.QueueSize(1000))
	tracer, closer := jaeger.NewTracer(service, jaeger.NewConstSampler(true), reporter, jaeger.TracerOptions.Gen128Bit(true))
	for at := range 100 {
		parent := tracer.StartSpan(fmt.Sprintf("parent %d", at), ext.SpanKindRPCServer)
		child := tracer.StartSpan("child", opentracing.ChildOf(parent.Context()), ext.SpanKindRPCClient)
		child.SetTag("number", at)
		child.SetTag("fraction", 0.5)
		ext.Error.Set(child, true)
		child.LogFields(log.String("event", "retry"), log.Int("attempt", 2))
		child.Finish()
		parent.Finish()
	}
	closer.Close()
}
