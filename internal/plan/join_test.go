package plan_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// joining is one element of the annotation of app/web, planned beside attachments.
func joining(t *testing.T, element string, change func(*config.Config), beside ...plan.Attachment) (*plan.Plan, error) {
	t.Helper()
	cfg, _, err := config.Parse([]byte(`{"hotplug": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(cfg)
	}
	selections, problems := netspec.ParseSelections("["+element+"]", "app")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	nic := netspec.Ref{Namespace: "app", Name: "nic"}
	facts := plan.Facts{
		NADs: map[netspec.Ref]plan.NAD{nic: {
			Ref: nic, Annotations: map[string]string{netspec.AnnotationResourceName: "x/nic"},
			Config: `{"cniVersion":"1.0.0","name":"nic","type":"sriov","capabilities":{"mac":true,"portMappings":true,"bandwidth":true,"infinibandGUID":true}}`,
		}},
		Devices: plan.Devices{ByResource: map[string][]string{"x/nic": {"d1", "d2"}}, Detail: "the test"},
	}
	call := plan.Call{ContainerID: "c0ffee", Args: []plan.Arg{{"IgnoreUnknown", "true"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", "u"}, {"X", "y"}}}
	pod := plan.Subject{Pod: plan.Pod{Namespace: "app", Name: "web", UID: "u"}}
	return plan.Join(cfg, call, pod, facts, selections[0], 3, beside)
}

// Everything that an element can ask for is planned as at ADD; devices that the pod uses
// already are not used twice.
func TestI5_JoinAsAtAdd(t *testing.T) {
	p, err := joining(t, `{"name":"nic","interface":"hot0","mac":"02:00:00:00:00:01","infiniband-guid":"00:11:22:33:44:55:66:77",
		"portMappings":[{"hostPort":80,"containerPort":8080}],"bandwidth":{"ingressRate":1},"cni-args":{"k":1.0},"default-route":["10.0.0.1"]}`, nil, plan.Attachment{DeviceID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.Attachments[0]
	if a.Selected == nil || a.Selected.MAC != a.Request.MAC {
		t.Errorf("the element is not recorded: %+v", a.Selected)
	}
	a.Selected = nil
	const want = `{"role":"secondary","network":"app/nic","element":3,"interface":"hot0",` +
		`"config":{"cniVersion":"1.0.0","name":"nic","type":"sriov","capabilities":{"mac":true,"portMappings":true,"bandwidth":true,"infinibandGUID":true},"deviceID":"d2","pciBusID":"d2","args":{"cni":{"k":1.0}}},` +
		`"args":[["IgnoreUnknown","true"],["K8S_POD_NAMESPACE","app"],["K8S_POD_NAME","web"],["K8S_POD_INFRA_CONTAINER_ID","c0ffee"],["K8S_POD_UID","u"],["X","y"],["MAC","02:00:00:00:00:01"]],` +
		`"capabilityArgs":{"bandwidth":{"ingressRate":1,"ingressBurst":0,"egressRate":0,"egressBurst":0},"infinibandGUID":"00:11:22:33:44:55:66:77","mac":"02:00:00:00:00:01","portMappings":[{"hostPort":80,"containerPort":8080}]},` +
		`"routes":{"gateways":["10.0.0.1"],"dropV4":true},"deviceID":"d2","resource":"x/nic","deviceInfoFile":"/var/run/k8s.cni.cncf.io/devinfo/cni/app-nic-c0ffee_hot0","request":{"mac":"02:00:00:00:00:01","infinibandGUID":"00:11:22:33:44:55:66:77"}}`
	if diff := cmp.Diff(want, string(cniconf.Quote(a))); diff != "" {
		t.Error(diff)
	}
}

func TestI5_JoinRefuses(t *testing.T) {
	holder := plan.Attachment{Role: plan.Secondary, Network: "app/lan", Element: 1, DeviceID: "d1", Routes: plan.RouteWish{Gateways: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}}
	const pod = "pod app/web: network selection element 3, network "
	for name, c := range map[string]struct {
		element string
		change  func(*config.Config)
		beside  []plan.Attachment
		want    string
	}{
		"no definition": {
			`{"name":"gone","interface":"x"}`, nil, nil,
			pod + `app/gone, annotation "k8s.v1.cni.cncf.io/networks": there is no such NetworkAttachmentDefinition; right would be the name of one that exists`,
		},
		"isolation": {
			`{"name":"nic","namespace":"infra","interface":"x"}`, func(c *config.Config) { c.NamespaceIsolation = true }, nil,
			pod + `infra/nic, annotation "k8s.v1.cni.cncf.io/networks": namespace isolation keeps pods of "app" from networks of "infra"; right would be a network of one of the namespaces app, default`,
		},
		"a second gateway": {
			`{"name":"nic","interface":"x","default-route":["10.0.0.1"]}`, nil,
			[]plan.Attachment{holder},
			pod + `app/nic, key "default-route": found an IPv4 gateway, and element 1 (app/lan) has one too; right would be one gateway of each family in the whole pod`,
		},
		"a device in use is requested": {
			`{"name":"nic","interface":"x","deviceID":"d1"}`, nil,
			[]plan.Attachment{{DeviceID: "d1", Resource: "x/nic"}},
			pod + `app/nic, key "deviceID": another attachment has the device "d1" too; right would be a device of its own for each attachment`,
		},
		"all devices are used": {
			`{"name":"nic","interface":"x"}`, nil,
			[]plan.Attachment{{DeviceID: "d1"}, {DeviceID: "d2"}},
			pod + `app/nic, annotation "k8s.v1.cni.cncf.io/resourceName": found 0 devices of the resource "x/nic" allocated to the pod, and this attachment takes number 1 (the test); right would be as many devices in the containers' resources as the pod has attachments of the resource`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := joining(t, c.element, c.change, c.beside...)
			if err == nil {
				t.Fatal("no refusal")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
