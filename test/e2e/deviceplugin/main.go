// Command deviceplugin is a device plugin of the suite: it registers devices that exist
// nowhere with the kubelet of the node it runs on, gives each container its ids in
// SUITE_DEVICES, and says of each device what device plugins of networks say. It ends when
// its stdin does.
//
//	deviceplugin suite.example/nic nic-a nic-b nic-c
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, resource string, ids []string) error {
	for _, id := range ids {
		file, err := inform(resource, id)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(file) }()
	}
	socket := filepath.Join(pluginapi.DevicePluginPath, strings.ReplaceAll(resource, "/", "-")+".sock")
	_ = os.Remove(socket) // of one that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	pluginapi.RegisterDevicePluginServer(server, &plugin{ids: ids})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(ctx, filepath.Base(socket), resource); err != nil {
		return err
	}
	fmt.Println("registered")
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

// inform writes the device-info file of a device (device-info specification 1.1).
func inform(resource, id string) (string, error) {
	if err := os.MkdirAll(infoDir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(infoDir, strings.ReplaceAll(resource+"-"+id, "/", "-")+"-device.json")
	return file, os.WriteFile(file, []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"`+id+`"}}`), 0o644)
}

func register(ctx context.Context, endpoint, resource string) error {
	conn, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	ids []string
}

func (*plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	var all []*pluginapi.Device
	for _, id := range p.ids {
		all = append(all, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (*plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"SUITE_DEVICES": strings.Join(c.DevicesIds, " ")},
		})
	}
	return answer, nil
}
