package grpc

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	serveVariable = "WEFT_BENCH_GRPC" // "lane address": this process is the server
	maxMessage    = 1 << 30
	window        = 16 << 20
	buffered      = 128 << 10
)

func TestMain(m *testing.M) {
	lane, addr, serving := strings.Cut(os.Getenv(serveVariable), " ")
	if !serving {
		os.Exit(m.Run())
	}
	if err := serve(lane, addr); err != nil {
		fmt.Fprintln(os.Stderr, "grpc server:", err)
		os.Exit(1)
	}
}

// raw is a codec of bytes as they are; what arrives lies in one buffer.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// method is one that does what handle does with the request's bytes.
func method(name string, handle func([]byte) []byte) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := decode(&in); err != nil {
			return nil, err
		}
		out := handle(in)
		return &out, nil
	}}
}

var service = grpc.ServiceDesc{ServiceName: "bench", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
	method("empty", func([]byte) []byte { return nil }),
	method("numel", func(in []byte) []byte { return fmt.Append(nil, len(in)/4) }),
	method("add", func(in []byte) []byte { return add(in[:len(in)/2], in[len(in)/2:]) }),
}}

// serve answers until standard input ends; it prints its address when it listens.
func serve(lane, addr string) error {
	network, creds := "tcp", insecure.NewCredentials()
	switch lane {
	case "grpc-unix":
		network = "unix"
	case "grpc-tls":
		cert, err := selfSigned()
		if err != nil {
			return err
		}
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}})
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.ReadBufferSize(buffered), grpc.WriteBufferSize(buffered))
	s.RegisterService(&service, nil)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		s.Stop()
	}()
	fmt.Println(l.Addr())
	return s.Serve(l)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// dial starts a server and connects with it; both end with the test.
func dial(t testing.TB, lane string) *grpc.ClientConn {
	t.Helper()
	addr, target, creds := "127.0.0.1:0", "passthrough:///", insecure.NewCredentials()
	switch lane {
	case "grpc-unix":
		addr, target = filepath.Join(t.TempDir(), "socket"), "unix://"
	case "grpc-tls":
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // it is measured, not trusted
	}
	self, err := os.Executable()
	require(t, err)
	server := exec.Command(self)
	server.Env = append(os.Environ(), serveVariable+"="+lane+" "+addr)
	server.Stderr = os.Stderr
	hold, err := server.StdinPipe()
	require(t, err)
	out, err := server.StdoutPipe()
	require(t, err)
	require(t, server.Start())
	t.Cleanup(func() { _ = hold.Close(); require(t, server.Wait()) })
	line, err := bufio.NewReader(out).ReadString('\n')
	require(t, err)
	conn, err := grpc.NewClient(target+strings.TrimSpace(line), grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithReadBufferSize(buffered), grpc.WithWriteBufferSize(buffered))
	require(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func require(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
