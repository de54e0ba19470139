package migrate

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/multus-thick/multus/internal/config"
)

// differences tells what changes for those who know the old installation.
func (t *target) differences() {
	if loose(t.Image) {
		_, tag := splitImage(t.Image)
		t.change("the tag :"+tag+" becomes an exact version", "it means another image on each node that joins or pulls again", "")
	}
	for _, p := range t.Probes {
		t.probe(p)
	}
	t.primary()
	t.memoryChange()
	if t.fixed {
		t.change("multusConfigFile becomes auto", "the file that was copied runs the plugin by itself; its keys are in daemon-config.json now", "remove the copy from "+t.conf+" of each node: "+path.Base(t.text("multusConfigFile")))
	}
	if t.text("multusConfigFile") == "auto" && t.ds != nil {
		for _, m := range configMaps(t.ds.Spec.Template.Spec) {
			if t.Kind == Thin {
				t.change("ConfigMap "+m+" is not read, as before", "--multus-conf-file=auto generates the configuration", "")
			}
		}
	}
	if t.Kind == Thin {
		t.change("a daemon runs on each node", "the plugin asks it in place of the API server; pods with further networks wait while it is away, plain pods and all deletions do not", "")
	}
	if t.main == nil {
		return
	}
	t.access()
	if t.Kind == Thick && !t.keepsRecords() {
		t.lose("the records of running pods", "v4's daemon keeps them in its container, and not in a folder of the node, so they go with its pod", "the deletion of pods that run now may leave addresses behind: drain each node when its daemon is replaced")
	}
}

// probe: those of v3 look with cat for the generated file.
func (t *target) probe(p Probe) {
	if strings.HasPrefix(p.Runs, "cat ") {
		t.change(p.Probe+" `"+p.Runs+"` goes", "the file outlives the daemon now, so it proves nothing; our manifest asks the daemon (multus-daemon readycheck and healthcheck)", "keep it as long as you change the image alone: our images have cat, which those of v4 without a shell have not")
		return
	}
	t.change(p.Probe+" `"+p.Runs+"` goes", "our manifest asks the daemon (multus-daemon readycheck and healthcheck)", "")
}

func (t *target) primary() {
	switch {
	case t.text("multusMasterCNI") != "" && t.Kind == Thin:
		t.change("the pinned primary network is waited for", "nothing else is ever taken, and until it is there annotated pods wait", "")
	case t.fixed || t.text("clusterNetwork") != "" || t.text("multusMasterCNI") != "":
	case t.distribution.primary != "":
		t.change("the primary network is still not pinned", "the choice follows the folder, so a lower-named file takes over", "set multusMasterCNI to "+t.distribution.primary+", if that is your primary network's file")
	default:
		t.change("the primary network is still not pinned", "the choice follows the folder, so a lower-named file takes over", "set multusMasterCNI to the name of your primary network's file")
	}
}

func (t *target) memoryChange() {
	if t.MemoryLimit == "" {
		return
	}
	what := "the memory limit of " + t.MemoryLimit + " becomes " + t.memory()
	if t.MemoryLimit == t.memory() {
		what = "the memory limit of " + t.MemoryLimit + " stays, and is enough"
	}
	switch {
	case t.kind == Hotplug:
		t.change(what, "delegates for running pods run in the daemon's container and count there", "allow the size of your largest plugin for each that runs at once")
	case t.Kind == Thick:
		t.change(what, "the delegates ran in the daemon's container, and a burst of pods ended it there; they run on the host now", "")
	default:
		t.change(what, "the daemon needs no more with 250 pods and 5 000 networks; the delegates run on the host, as before", "")
	}
}

// access is what the new pod may not do any more.
func (t *target) access() {
	if t.kind == Hotplug {
		return
	}
	pod := t.ds.Spec.Template.Spec
	var gone []string
	if c := t.main.SecurityContext; c != nil && c.Privileged != nil && *c.Privileged {
		gone = append(gone, "privileged")
	}
	if pod.HostPID {
		gone = append(gone, "hostPID")
	}
	for _, m := range t.Mounts {
		if _, seen := t.ourView(m.Host); !seen && !t.extraCovers(m.Host) && m.Host != t.bin {
			gone = append(gone, m.Host)
		}
	}
	if len(gone) > 0 {
		t.change("the pod loses "+strings.Join(gone, ", "), "nothing of Multus runs delegates or enters namespaces in the pod", "")
	}
}

func (t *target) extraCovers(host string) bool {
	return slices.ContainsFunc(t.extra, func(m extraMount) bool { return m.Host == host })
}

// keepsRecords tells whether v4's daemon wrote its records to the node.
func (t *target) keepsRecords() bool {
	dir := cmp.Or(t.text("cniDir"), config.DefaultCNIDir)
	return slices.ContainsFunc(t.Mounts, func(m Mount) bool {
		_, ok := below(dir, m.Pod)
		return ok
	})
}
