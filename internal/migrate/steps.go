package migrate

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	ourName      = "kube-multus-ds"
	ourNamespace = "kube-system"
	ourSet       = "daemonset/" + ourName
)

// steps are the way there and back.
func (t *target) steps(image string) []Step {
	look := Step{
		Step:     "Look at each node",
		Commands: []string{"kubectl debug node/NODE -it --image=" + image + " --profile=sysadmin -- multusctl migrate --check"},
		Pods:     "nothing happens to them",
	}
	if t.ds == nil {
		return append([]Step{look}, t.stepsOfChart()...)
	}
	steps := []Step{look, t.keep()}
	missing := t.missing()
	if len(missing) == 0 {
		steps = append(steps, t.swap())
	} else {
		t.change("the image alone cannot be changed", "the manifest runs "+strings.Join(missing, ", ")+", which our image does not have", "go to our manifest at once, as below")
	}
	return append(steps, t.takeOver(len(missing) == 0), t.back())
}

func kubectl(namespace, rest string) string { return "kubectl -n " + namespace + " " + rest }

func (t *target) keep() Step {
	all := []string{"daemonset/" + t.Name}
	for _, name := range configMaps(t.ds.Spec.Template.Spec) {
		all = append(all, "configmap/"+name)
	}
	account := t.ds.Spec.Template.Spec.ServiceAccountName
	if account != "" {
		all = append(all, "serviceaccount/"+account)
	}
	all = append(all, "clusterrole/multus", "clusterrolebinding/multus")
	get := "get --ignore-not-found -o yaml " + strings.Join(all, " ") + " | grep -vE '^ +(resourceVersion|uid): ' >before.yaml"
	return Step{
		Step: "Keep what is there, for the way back", Commands: []string{kubectl(t.Namespace, get)},
		Pods: "nothing happens to them",
	}
}

// inImage are the programs of our images by the path or name that a manifest runs
// (docs/images.md).
func inImage(kind Kind) map[string]bool {
	const bin = "/usr/src/multus-cni/bin/"
	all := []string{"/install_multus", "/cert-approver", "cat", "/bin/cat", bin + "install_multus", bin + "multus", bin + "passthru", bin + "thin_entrypoint", bin + "kubeconfig_generator", bin + "cert-approver"}
	if kind == Thin {
		all = append(all, "/thin_entrypoint", "/entrypoint.sh", "/kubeconfig_generator")
	} else {
		all = append(all, bin+"multus-daemon", bin+"multus-shim", "sh", "/bin/sh", "cp", "/bin/cp")
	}
	has := map[string]bool{}
	for _, path := range all {
		has[path] = true
	}
	return has
}

// missing are the programs that the manifest runs and our image of its kind does not have.
func (t *target) missing() []string {
	has, missing := inImage(t.Kind), map[string]bool{}
	need := func(command []string) {
		if len(command) > 0 && !has[command[0]] {
			missing[command[0]] = true
		}
	}
	pod := t.ds.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if !isMultus(c) {
			continue
		}
		need(c.Command)
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.Exec != nil {
				need(p.Exec.Command)
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// swap changes the image and nothing else.
func (t *target) swap() Step {
	image := t.options.Image + ":" + ourVersion
	if t.Kind == Thick {
		image += "-thick"
	}
	var all []string
	pod := t.ds.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if isMultus(c) {
			all = append(all, c.Name+"="+image)
		}
	}
	set := "daemonset/" + t.Name
	return Step{
		Step: "Change the image and nothing else; stay here as long as you like",
		Commands: []string{
			kubectl(t.Namespace, "set image "+set+" "+strings.Join(all, " ")),
			kubectl(t.Namespace, "rollout status "+set),
		},
		Pods: "running pods keep their networks, and their deletion gives back what the old plugin attached. " + t.gap(t.removes()),
	}
}

// removes is why the configuration goes from the node when the old pod stops; "" where it
// stays.
func (t *target) removes() string {
	switch {
	case t.Kind == Thick && !strings.HasPrefix(t.Version, "v5."):
		return "The daemon of v4 removes 00-multus.conf when it stops"
	case t.Kind == Thin && t.flag("cleanupConfigOnExit"):
		return "The entrypoint removes its configuration when it stops (--cleanup-config-on-exit)"
	}
	return ""
}

// gap is what happens on a node while its pod is replaced.
func (t *target) gap(removes string) string {
	switch {
	case removes != "":
		return removes + ": until the new pod is up, pods that start on that node get the primary network alone. Cordon the nodes meanwhile (kubectl cordon NODE), and restart annotated pods that started in the gap"
	case t.Kind == Thin:
		return "The plugin and its configuration stay on the node while the pod is replaced, so pods start with all their networks meanwhile"
	}
	return "Plain pods start and all pods are deleted meanwhile; pods with further networks wait the few seconds until the node's daemon is back"
}

func (t *target) flag(key string) bool {
	for _, k := range t.all {
		if k.Key.Key == key {
			return string(k.Value) == "true"
		}
	}
	return false
}

// replaces tells whether kubectl apply of our manifest takes the old one's place, and else
// why not.
func (t *target) replaces() (why string, ok bool) {
	s := t.ds
	switch {
	case t.Name != ourName || t.Namespace != ourNamespace:
		return "its name is " + t.Namespace + "/" + t.Name, false
	case s.Spec.Selector == nil || len(s.Spec.Selector.MatchExpressions) > 0 || !maps.Equal(s.Spec.Selector.MatchLabels, map[string]string{"name": "multus"}):
		return "its selector is another, which cannot be changed", false
	case t.ManagedBy == "Helm":
		return "Helm manages it", false
	case s.UID != "" && t.ManagedBy == "": // an object of a cluster
		return "kubectl apply did not make it, so leftovers of it would stay", false
	}
	return "", true
}

// takeOver puts our manifest in the place of the old one; swapped says that it runs our
// image by now.
func (t *target) takeOver(swapped bool) Step {
	step := Step{Step: "Take our manifest: in the folder of the new files", Commands: []string{"kubectl apply -k ."}}
	if why, ok := t.replaces(); !ok {
		step.Step = "Delete the old DaemonSet, because " + why + ", and take our manifest: in the folder of the new files"
		remove := kubectl(t.Namespace, "delete daemonset "+t.Name)
		if t.ManagedBy == "Helm" {
			remove = "helm -n " + t.Namespace + " uninstall " + cmp.Or(t.ds.Annotations["meta.helm.sh/release-name"], "RELEASE")
			t.change("the Helm release goes", "two owners would undo each other's changes", "look first whether the release holds the kind (helm get manifest): with the CustomResourceDefinition all networks would be deleted")
		}
		step.Commands = append([]string{remove}, step.Commands...)
	}
	step.Commands = append(step.Commands,
		kubectl(ourNamespace, "rollout status "+ourSet),
		kubectl(ourNamespace, "exec "+ourSet+" -- multusctl doctor"))
	removes := t.removes()
	if swapped {
		removes = t.ownRemoves()
	}
	step.Pods = "running pods keep their networks. " + t.gap(removes)
	if t.Kind == Thin {
		step.Pods += ". Once the daemon has written 00-multus.conf anew, pods with further networks ask it. " + path.Join(t.bin, "multus") +
			" and multus.d/multus.kubeconfig stay on the node: CRI-O deletes a pod with the plugin that made it"
	}
	return step
}

// ownRemoves is removes for our programs in the old manifest: they do it only when told to.
func (t *target) ownRemoves() string {
	if t.flag("cleanupConfigOnExit") {
		return "With cleanupConfigOnExit the configuration goes when the pod stops"
	}
	return ""
}

func (t *target) back() Step {
	commands := []string{"kubectl replace -f before.yaml"}
	if _, ok := t.replaces(); !ok {
		commands = []string{"kubectl delete -k .", "kubectl apply -f before.yaml"}
	}
	return Step{
		Step:     "The way back, at any time",
		Commands: append(commands, kubectl(t.Namespace, "rollout status daemonset/"+t.Name)),
		Pods:     "running pods keep their networks: the old plugin reads our records, and deletes what we attached. The old pod writes its own 00-multus.conf over ours",
	}
}

// stepsOfChart are the way of those who have values alone.
func (t *target) stepsOfChart() []Step {
	kind := ""
	if t.Kind == Thick {
		kind = "-thick"
	}
	return []Step{
		{
			Step:     "Change the image and nothing else: image.repository " + t.options.Image + " and image.tag " + ourVersion + kind + " in the values you have; stay here as long as you like",
			Commands: []string{"helm list --all-namespaces --filter multus"},
			Pods:     "running pods keep their networks. " + t.gap(t.removes()),
		},
		{
			Step:     "Take the chart's installation off as it came (leave multus out of RKE2's list cni, or delete the HelmChart), and take our manifest: in the folder of the new files",
			Commands: []string{"kubectl get crd network-attachment-definitions.k8s.cni.cncf.io", "kubectl apply -k .", kubectl(ourNamespace, "rollout status "+ourSet), kubectl(ourNamespace, "exec "+ourSet+" -- multusctl doctor")},
			Pods:     "running pods keep their networks. Where a chart takes the kind away, all networks go with it: keep them (kubectl get network-attachment-definitions -A -o yaml)",
		},
		{
			Step: "The way back, at any time", Commands: []string{"kubectl delete -k ."},
			Pods: "then bring the chart back; the old plugin reads our records, and deletes what we attached",
		},
	}
}
