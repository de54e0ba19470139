package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// target is the installation to be, while it is put together.
type target struct {
	*source
	remarks
	options  Options
	kind     Kind
	config   cniconf.Object
	extra    []extraMount
	networks []network
	patch    object // of the DaemonSet's pod, beside volumes
}

type object = map[string]any

// extraMount is a folder of the node that our manifest does not mount.
type extraMount struct {
	Mount
	writable bool
}

// network is a NetworkAttachmentDefinition that is needed.
type network struct {
	name string
	conf cniconf.Config
}

func (t *target) write(key string, value any) { t.config = t.config.With(key, cniconf.Quote(value)) }

// keys makes the daemon's file: what our manifest needs, and over it what was there, each
// with its meaning.
func (t *target) keys() {
	if t.kind == Hotplug {
		t.write("chrootDir", "/hostroot")
	}
	t.write("cniConfigDir", podConf)
	if t.conf != usualConf || t.distribution.sayConf {
		t.write("hostCniConfigDir", t.conf)
	}
	t.write("multusAutoconfigDir", podConf)
	t.write("multusConfigFile", config.AutoConfigFile)
	t.write("socketDir", podSocket+"/")
	if t.bin != usualBin {
		t.write("binDir", t.bin)
	}
	t.write("logLevel", "verbose")
	for _, k := range t.all {
		t.carry(k)
	}
	if t.text("logLevel") == "" {
		t.change("logLevel becomes verbose", "it was not set, so little was logged; an ADD or DEL is one line now", "")
	}
}

// carry takes over one key. The table of those that need more than a copy is long, hence the
// function; each case is its own.
func (t *target) carry(k setting) {
	var text string
	_ = json.Unmarshal(k.Value, &text) // "" where it is no text
	host := k.host(text)
	what := "key " + k.Key.Key
	switch key := k.Key.Key; key {
	case "type", "multusConfigFile", "cniConfigDir", "hostCniConfigDir", "prevResult", "runtimeConfig", "host":
		// our manifest's own, or the runtime's
	case "chrootDir":
		if t.kind != Hotplug {
			t.change(what+" goes", "the delegates run on the host, as the runtime's own plugins do; the daemon needs the host's root only to attach networks to running pods", "with the dynamic networks controller take deploy/hotplug")
		}
	case "socketDir", "daemonSocketDir":
		if host != "/run/multus" && host != "/var/run/multus" {
			t.change(what+": the socket moves to /run/multus", "it was in "+host, "programs that ask the daemon need the new path")
		}
	case "multusAutoconfigDir":
		t.autoconfigDir(host)
	case "binDir":
		t.write(key, host)
	case "cniDir":
		if host != config.DefaultCNIDir {
			t.write(key, host)
			t.mount(host, host, t.kind == Hotplug)
		}
	case "logFile":
		t.write(key, host)
		t.mount(path.Dir(host), path.Dir(host), true) // the plugin on the host writes to it too
	case "confDir", "readinessindicatorfile":
		t.file(key, host)
	case "kubeconfig":
		t.kubeconfig(k, host)
	case "perNodeCertificate":
		t.lose(what, "its files lie where your pod sees them, and not where ours does", "set it by docs/configure.md, with volumes for both paths")
	case "name":
		if t.fixed && text != config.DefaultNetworkName {
			t.lose(what+` "`+text+`"`, "a generated configuration is called "+config.DefaultNetworkName+", or as the primary network with overrideNetworkName", "")
		}
	case "clusterNetwork":
		t.clusterNetwork(text, host)
	case "delegates":
		t.delegates(k.Value)
	default:
		t.config = t.config.With(key, k.Value)
	}
}

// ourView is the daemon's name of a file on the host, where our manifest mounts it.
func (t *target) ourView(host string) (pod string, ok bool) {
	seen := []Mount{{t.conf, podConf}, {"/run/multus", podSocket}, {config.DefaultCNIDir, config.DefaultCNIDir}, {config.DefaultConfDir, config.DefaultConfDir}}
	for _, m := range seen {
		if rest, ok := below(host, m.Host); ok {
			return path.Join(m.Pod, rest), true
		}
	}
	return "", false
}

func (t *target) mount(host, pod string, writable bool) {
	for i := range t.extra {
		if t.extra[i].Host == host {
			t.extra[i].writable = t.extra[i].writable || writable
			return
		}
	}
	t.extra = append(t.extra, extraMount{Mount{host, pod}, writable})
}

// file names a file, or the folder confDir, as our daemon sees it; its folder is mounted
// where it is not.
func (t *target) file(key, host string) {
	if key == "confDir" && host == config.DefaultConfDir {
		return
	}
	pod, seen := t.ourView(host)
	if !seen {
		dir := host
		if key != "confDir" {
			dir = path.Dir(host)
		}
		pod = "/host" + host
		t.mount(dir, "/host"+dir, false)
	}
	t.write(key, pod)
}

// autoconfigDir is where the primary network's file is. Ours is the runtime's folder.
func (t *target) autoconfigDir(host string) {
	if host == t.conf {
		return
	}
	t.mount(host, "/host"+host, false)
	t.write("multusAutoconfigDir", "/host"+host)
	t.config = t.config.Without("hostCniConfigDir")
}

func (t *target) kubeconfig(k setting, host string) {
	if t.Kind == Thin {
		t.change("key kubeconfig goes", "the plugin asks the daemon, and the daemon uses its service account", "")
		return
	}
	t.lose("key kubeconfig "+string(k.Value), "our daemon uses its service account, whose rights are in deploy/thick/rbac.yaml; "+host+" is not mounted", "if it must be another account, mount the file and set the key")
}

// clusterNetwork: a file in the runtime's folder is what multusMasterCNI names. A name stays.
func (t *target) clusterNetwork(text, host string) {
	if !strings.Contains(text, "/") {
		t.write("clusterNetwork", text)
		return
	}
	if path.Dir(host) == t.conf {
		t.write("multusMasterCNI", path.Base(host))
		t.change("key clusterNetwork becomes multusMasterCNI "+path.Base(host), "it names a file of the runtime's folder; that file is waited for, and read for each pod", "")
		return
	}
	t.lose("key clusterNetwork "+text, "the daemon does not see "+host, "put the file into "+t.conf+" and name it with multusMasterCNI")
}

// delegates are networks that the configuration holds itself. They become definitions, the
// first the primary network and the others default networks.
func (t *target) delegates(raw json.RawMessage) {
	if t.text("clusterNetwork") != "" {
		return // without effect, as before
	}
	var all []json.RawMessage
	_ = json.Unmarshal(raw, &all) // a list: drop has looked
	var names []string
	for i, text := range all {
		c, err := cniconf.Parse(text)
		if err != nil {
			t.lose(fmt.Sprintf("delegate %d", i+1), "it "+err.Error(), "")
			continue
		}
		name := resourceName(cmp.Or(c.Name(), fmt.Sprintf("delegate-%d", i+1)))
		t.networks = append(t.networks, network{name, c})
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	t.write("clusterNetwork", names[0])
	do := "if the primary CNI writes a file of its own into " + t.conf + ", rather leave clusterNetwork and the definition " + names[0] + " out, and set multusMasterCNI to the file's name: the file is then read for each pod"
	t.change("delegates become definitions: "+strings.Join(names, ", "), "a generated configuration holds no networks", do)
	if len(names) > 1 {
		t.write("defaultNetworks", names[1:])
		t.change("pods in kube-system have the primary network alone", "defaultNetworks leave systemNamespaces out; delegates did not", "")
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

func resourceName(name string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-.")
}
