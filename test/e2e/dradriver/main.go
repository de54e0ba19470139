// Command dradriver is a DRA driver of the suite, its part on a node: the kubelet has it
// prepare the claims that the scheduler gave devices, which it does with a CDI device of
// the same name for each. The suite publishes the ResourceSlices. It ends when its stdin
// does.
//
//	dradriver nic.suite.example vf0 vf1 vf2
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/clientcmd"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	kubeconfig = "/etc/kubernetes/kubelet.kubeconfig" // the node may read the claims of its pods
	registry   = "/var/lib/kubelet/plugins_registry"
	plugins    = "/var/lib/kubelet/plugins"
	cdiDir     = "/var/run/cdi"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

func run(name string, devices []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := resourceclient.NewForConfig(config)
	if err != nil {
		return err
	}
	spec, err := describe(name, devices)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(spec) }()
	d := &driver{name: name, client: client, registered: make(chan struct{}, 1)}
	failed := make(chan error, 1)
	for socket, register := range map[string]func(*grpc.Server){
		d.endpoint(): func(s *grpc.Server) { drapb.RegisterDRAPluginServer(s, d) },
		filepath.Join(registry, name+"-reg.sock"): func(s *grpc.Server) { registration.RegisterRegistrationServer(s, &registrar{driver: d}) },
	} {
		stop, err := serve(socket, register, failed)
		if err != nil {
			return err
		}
		defer stop()
	}
	go func() {
		<-d.registered
		fmt.Println("registered")
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

func serve(socket string, register func(*grpc.Server), failed chan<- error) (stop func(), err error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	_ = os.Remove(socket) // of one that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	register(server)
	go func() {
		if err := server.Serve(listener); err != nil {
			failed <- err
		}
	}()
	return server.Stop, nil
}

// describe writes the CDI specification of the devices.
func describe(name string, devices []string) (string, error) {
	type device struct {
		Name  string              `json:"name"`
		Edits map[string][]string `json:"containerEdits"`
	}
	var all []device
	for _, d := range devices {
		all = append(all, device{d, map[string][]string{"env": {"SUITE_DEVICE_" + d + "=yes"}}})
	}
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": name + "/nic", "devices": all})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cdiDir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(cdiDir, name+"-nic.json")
	return file, os.WriteFile(file, text, 0o644)
}

type driver struct {
	drapb.UnimplementedDRAPluginServer
	name       string
	client     *resourceclient.ResourceV1Client
	registered chan struct{}
}

func (d *driver) endpoint() string { return filepath.Join(plugins, d.name, "dra.sock") }

func (d *driver) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	answer := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, claim := range r.Claims {
		prepared := &drapb.NodePrepareResourceResponse{}
		answer.Claims[claim.Uid] = prepared
		object, err := d.client.ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			prepared.Error = err.Error()
			continue
		case object.Status.Allocation == nil:
			prepared.Error = "the claim is not allocated"
			continue
		}
		for _, result := range object.Status.Allocation.Devices.Results {
			if result.Driver == d.name {
				prepared.Devices = append(prepared.Devices, &drapb.Device{
					RequestNames: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
					CdiDeviceIds: []string{d.name + "/nic=" + result.Device},
				})
			}
		}
	}
	return answer, nil
}

func (d *driver) NodeUnprepareResources(_ context.Context, r *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	answer := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, claim := range r.Claims {
		answer.Claims[claim.Uid] = &drapb.NodeUnprepareResourceResponse{}
	}
	return answer, nil
}

// registrar is what the kubelet finds in its registry.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver *driver
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: r.driver.name, Endpoint: r.driver.endpoint(),
		SupportedVersions: []string{drapb.DRAPluginService},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		return nil, fmt.Errorf("the kubelet does not take the driver: %s", s.Error)
	}
	select {
	case r.driver.registered <- struct{}{}:
	default: // the kubelet was started anew
	}
	return &registration.RegistrationStatusResponse{}, nil
}
