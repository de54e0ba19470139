package migrate

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// words are a container's command and arguments; those of a script one by one.
func words(c corev1.Container) []string {
	var all []string
	for _, text := range slices.Concat(c.Command, c.Args) {
		for _, word := range strings.Fields(text) {
			all = append(all, strings.Trim(word, `"'`))
		}
	}
	return all
}

func runs(c corev1.Container, program string) bool {
	return slices.ContainsFunc(words(c), func(w string) bool { return programOf(w) == program })
}

// programOf is the program that a word names, also at the end of a script's command.
func programOf(word string) string { return path.Base(strings.TrimRight(word, ";")) }

// isMultus tells a container of Multus by its image's name or, for hardened and mirrored
// images, by what it runs. Others have Multus in their names, such as the admission
// controller.
func isMultus(c corev1.Container) bool {
	repository, _ := splitImage(c.Image)
	base := path.Base(repository)
	return base == "multus" || strings.Contains(base, "multus-cni") || runs(c, "multus-daemon") || runs(c, "thin_entrypoint") ||
		slices.ContainsFunc(words(c), func(w string) bool { return strings.HasPrefix(w, "--multus-") })
}

// mainContainer is the one that runs the daemon or the entrypoint; nil where the pod is
// none of Multus.
func mainContainer(pod corev1.PodSpec) *corev1.Container {
	for i, c := range pod.Containers {
		if isMultus(c) && !runs(c, "kubeconfig_generator") {
			return &pod.Containers[i]
		}
	}
	return nil
}

func kindOf(c corev1.Container) Kind {
	_, tag := splitImage(c.Image)
	if runs(c, "multus-daemon") || len(c.Command) == 0 && strings.Contains(tag, "thick") {
		return Thick
	}
	return Thin
}

// arguments are those of the entrypoint or the daemon, also inside of a script.
func arguments(c corev1.Container) []string {
	all := words(c)
	start := slices.IndexFunc(all, func(w string) bool {
		return slices.Contains([]string{"multus-daemon", "thin_entrypoint", "entrypoint.sh"}, programOf(w))
	})
	if start >= 0 && strings.HasSuffix(all[start], ";") {
		return nil
	}
	all = all[start+1:]
	if end := slices.IndexFunc(all, func(w string) bool { return strings.ContainsAny(w, ";&|") }); end >= 0 {
		all = all[:end]
	}
	return all
}

// splitImage is an image's repository, and its tag or digest.
func splitImage(image string) (repository, tag string) {
	if repository, digest, ok := strings.Cut(image, "@"); ok {
		return repository, digest
	}
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

var versionInTag = regexp.MustCompile(`^v?(\d+\.\d+(\.\d+)?)`)

func versionOf(image string) string {
	_, tag := splitImage(image)
	if m := versionInTag.FindStringSubmatch(tag); m != nil {
		return "v" + m[1]
	}
	return ""
}

func probes(c corev1.Container) []Probe {
	var all []Probe
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"startupProbe", c.StartupProbe}, {"readinessProbe", c.ReadinessProbe}, {"livenessProbe", c.LivenessProbe}} {
		switch {
		case p.probe == nil:
		case p.probe.Exec != nil:
			all = append(all, Probe{p.name, strings.Join(p.probe.Exec.Command, " ")})
		case p.probe.HTTPGet != nil:
			all = append(all, Probe{p.name, "GET " + cmp.Or(p.probe.HTTPGet.Path, "/") + " on port " + p.probe.HTTPGet.Port.String()})
		default:
			all = append(all, Probe{p.name, "another check"})
		}
	}
	return all
}

// mounts are the node's folders in a container, the deepest first.
func mounts(pod corev1.PodSpec, c corev1.Container) []Mount {
	var all []Mount
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.HostPath != nil {
				all = append(all, Mount{path.Join(v.HostPath.Path, m.SubPath), path.Clean(m.MountPath)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Mount) int { return cmp.Compare(len(b.Pod), len(a.Pod)) })
	return all
}

// below is the rest of a path below a folder.
func below(file, folder string) (rest string, ok bool) {
	if folder == "/" {
		return file, strings.HasPrefix(file, "/")
	}
	rest, ok = strings.CutPrefix(file, folder)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// onHost is a path of the container as the host names it. What is not mounted keeps its name,
// without the /host that is custom.
func onHost(all []Mount, file string) string {
	file = path.Clean(file)
	for _, m := range all {
		if rest, ok := below(file, m.Pod); ok {
			return path.Join(m.Host, rest)
		}
	}
	if bare, ok := strings.CutPrefix(file, "/host/"); ok {
		return "/" + bare
	}
	return file
}
