package manifest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/netspec"
	"github.com/multus-thick/multus/internal/plan"
)

// Folder holds what a folder's files describe. It implements gather.Pods and
// gather.Networks, and daemon.Cluster, and does not change.
type Folder struct {
	dir      string
	pods     []gather.Pod
	networks map[netspec.Ref]plan.NAD
}

// Warning is something in the files that is left out or overridden, in one line that
// begins with the place.
type Warning string

// Load reads the *.yaml, *.yml and *.json files of dir, in the order of their names;
// folders in it are left alone, and so is daemon-config.json, which is the node's and
// not the cluster's. A namespace that is not given is "default". Of two
// objects with one name the later counts, as with kubectl apply, with a warning.
//
// The error joins everything that cannot be read, one line each, with file, number of
// the document, kind and name.
func Load(dir string) (*Folder, []Warning, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("manifests: %w", err)
	}
	l := loader{folder: &Folder{dir: dir, networks: map[netspec.Ref]plan.NAD{}}}
	for _, entry := range entries {
		if IsManifest(entry) {
			l.file(filepath.Join(dir, entry.Name()))
		}
	}
	if len(l.errs) > 0 {
		return nil, l.warnings, errors.Join(l.errs...)
	}
	return l.folder, l.warnings, nil
}

// NodeConfigFile is the one JSON file in a folder that Load does not read.
const NodeConfigFile = "daemon-config.json"

// IsManifest tells whether Load reads this entry of a folder.
func IsManifest(entry fs.DirEntry) bool {
	extensions := []string{".yaml", ".yml", ".json"}
	return !entry.IsDir() && entry.Name() != NodeConfigFile && slices.Contains(extensions, filepath.Ext(entry.Name()))
}

// Definitions are all NetworkAttachmentDefinitions, by namespace and name.
func (f *Folder) Definitions() []plan.NAD {
	refs := slices.SortedFunc(maps.Keys(f.networks), func(a, b netspec.Ref) int { return strings.Compare(a.String(), b.String()) })
	all := make([]plan.NAD, len(refs))
	for i, ref := range refs {
		all[i] = f.networks[ref]
	}
	return all
}

// Pods are all pods, in the order in which they appear.
func (f *Folder) Pods() []gather.Pod { return slices.Clone(f.pods) }

// Cached implements gather.Pods: the files are as good as a cache.
func (f *Folder) Cached(namespace, name string) (gather.Pod, bool) {
	if i := f.find(namespace, name); i >= 0 {
		return f.pods[i], true
	}
	return gather.Pod{}, false
}

// Live implements gather.Pods. Its only error is gather.ErrNotFound.
func (f *Folder) Live(_ context.Context, namespace, name string) (gather.Pod, error) {
	if pod, ok := f.Cached(namespace, name); ok {
		return pod, nil
	}
	return gather.Pod{}, fmt.Errorf("pod %s/%s: %w in the manifests", namespace, name, gather.ErrNotFound)
}

// Network implements gather.Networks. Its only error is gather.ErrNotFound.
func (f *Folder) Network(_ context.Context, ref netspec.Ref) (plan.NAD, error) {
	if network, ok := f.networks[ref]; ok {
		return network, nil
	}
	return plan.NAD{}, fmt.Errorf("NetworkAttachmentDefinition %s: %w in the manifests", ref, gather.ErrNotFound)
}

func (f *Folder) find(namespace, name string) int {
	return slices.IndexFunc(f.pods, func(p gather.Pod) bool { return p.Namespace == namespace && p.Name == name })
}

// loader fills a Folder and goes on after errors.
type loader struct {
	folder   *Folder
	warnings []Warning
	errs     []error
}

func (l *loader) file(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	if err := Documents(path, text, l.object); err != nil {
		l.errs = append(l.errs, err)
	}
}

// Documents hands over each document of a YAML text as JSON, with the place where it
// stands. The error is that of the first that is no YAML, for where the next one begins is
// uncertain then.
func Documents(path string, text []byte, take func(place string, body []byte)) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		place := fmt.Sprintf("%s: document %d", path, number)
		var body []byte
		if err == nil {
			body, err = yaml.YAMLToJSON(document)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		take(place, body)
	}
}

// object takes in one object; a list's items each.
func (l *loader) object(place string, body []byte) {
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Namespace, Name string }
		Items    []json.RawMessage
	}
	if string(body) == "null" {
		return // nothing but comments
	}
	if err := json.Unmarshal(body, &head); err != nil {
		l.fail(place, err)
		return
	}
	if strings.HasSuffix(head.Kind, "List") {
		for i, item := range head.Items {
			l.object(fmt.Sprintf("%s, item %d", place, i+1), item)
		}
		return
	}
	ref := netspec.Ref{Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}
	if ref.Namespace == "" {
		ref.Namespace = metav1.NamespaceDefault
	}
	group, _, _ := strings.Cut(head.APIVersion, "/")
	place = fmt.Sprintf("%s: %s %s", place, head.Kind, ref)
	var err error
	switch {
	case head.Kind == "":
		err = errors.New("has no kind; it must be a Kubernetes object")
	case head.Kind == "Pod" && head.APIVersion == "v1":
		err = l.pod(place, ref, body)
	case head.Kind == "NetworkAttachmentDefinition" && group == "k8s.cni.cncf.io":
		err = l.network(place, ref, body)
	default:
		l.warn(place, "is neither a Pod nor a NetworkAttachmentDefinition; left out")
	}
	if err != nil {
		l.fail(place, err)
	}
}

var errNoName = errors.New("metadata.name is missing; a name must be given")

func (l *loader) pod(place string, ref netspec.Ref, body []byte) error {
	var p corev1.Pod
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	if p.Name == "" {
		return errNoName
	}
	source := p.Annotations[netspec.AnnotationConfigSource]
	pod := gather.Pod{
		Subject: plan.Subject{
			Pod:         plan.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: string(p.UID)},
			Annotations: p.Annotations,
		},
		Static: source != "" && source != "api",
	}
	if pod.UID == "" {
		pod.UID = uid(ref)
	}
	if i := l.folder.find(ref.Namespace, ref.Name); i >= 0 {
		l.warn(place, "replaces an earlier one")
		l.folder.pods[i] = pod
		return nil
	}
	l.folder.pods = append(l.folder.pods, pod)
	return nil
}

func (l *loader) network(place string, ref netspec.Ref, body []byte) error {
	var n struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Config json.RawMessage `json:"config"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return err
	}
	if n.Name == "" {
		return errNoName
	}
	network := plan.NAD{Ref: ref, Annotations: n.Annotations}
	if len(n.Spec.Config) > 0 {
		if err := json.Unmarshal(n.Spec.Config, &network.Config); err != nil {
			return fmt.Errorf("spec.config must be a string, as after 'config: |': %w", err)
		}
	}
	if _, ok := l.folder.networks[ref]; ok {
		l.warn(place, "replaces an earlier one")
	}
	l.folder.networks[ref] = network
	return nil
}

func (l *loader) warn(place, text string) {
	l.warnings = append(l.warnings, Warning(place+": "+text))
}

func (l *loader) fail(place string, err error) {
	l.errs = append(l.errs, fmt.Errorf("%s: %w", place, err))
}

// uid makes up a UID, the same each time, in the form of the API's.
func uid(ref netspec.Ref) string {
	h := sha256.Sum256([]byte(ref.String()))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
