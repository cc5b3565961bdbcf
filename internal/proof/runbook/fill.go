//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// fill writes one key again and again until etcd has no space.
func fill(ctx context.Context, h *hosts) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	files := transport.TLSInfo{CertFile: h.path("tls", "operator.crt"), KeyFile: h.path("tls", "operator.key"), TrustedCAFile: h.path("tls", "ca.crt")}
	config, err := files.ClientConfig()
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{h.here("https://10.0.0.11:2379")}, TLS: config, Username: "root", Password: "root-secret", Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	value := strings.Repeat("x", 1<<20)
	for {
		_, err := client.Put(ctx, "filled", value)
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			return nil
		case err != nil:
			return fmt.Errorf("fill etcd: %w", err)
		}
	}
}
