package plan

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/netspec"
)

// ownTypes are the names under which this plugin is run: as a delegate it would
// call itself for ever (design, rule 7).
var ownTypes = []string{"multus", "multus-cni", "multus-shim"}

// maxSize bounds a plan, which the daemon, the socket and the ledger hold whole: a
// pod may select one large definition many times.
const maxSize = 4 << 20

// network is a configuration on its way to becoming an attachment.
type network struct {
	role     Role
	name     string // for people and network-status
	config   cniconf.Config
	broken   bool               // a problem was found; there may be no configuration
	misread  bool               // the selection is incomplete: nothing follows from what it lacks
	resource string             // resourceName of the definition
	selected *netspec.Selection // nil for networks of the node
	element  int
	ifName   string
}

// with gives a network its configuration, which source holds; at is where to put
// the blame.
func (b *builder) with(n network, config cniconf.Config, source string, at netspec.Problem) network {
	n.config = config
	if config.HasType(ownTypes...) {
		at.Wrong = source + " runs Multus itself, and so without end"
		at.Right = "the configuration of another plugin"
		return b.broken(n, at)
	}
	return n
}

func (b *builder) broken(n network, p netspec.Problem) network {
	b.problem(p)
	n.broken = true
	return n
}

// notThere is broken for a network of the node that is lost, or not there yet.
func (b *builder) notThere(n network, p netspec.Problem) network {
	b.absent++
	return b.broken(n, p)
}

// inlined are the configurations of the key delegates; the first is the primary network.
func (b *builder) inlined() []network {
	if len(b.cfg.Delegates) == 0 {
		return []network{b.broken(network{role: Primary, name: b.cfg.Name}, netspec.Problem{
			Key: "clusterNetwork", Wrong: "the node's configuration has no primary network", Right: "the key clusterNetwork or delegates",
		})}
	}
	var all []network
	for i, raw := range b.cfg.Delegates {
		n := network{role: Default, name: b.cfg.Name}
		if i == 0 {
			n.role = Primary
		}
		at := netspec.Problem{Key: fmt.Sprintf("delegates[%d]", i)}
		conf, err := cniconf.Parse(raw)
		if err != nil {
			at.Wrong, at.Right = fmt.Sprintf("the configuration %v", err), rightConf
			all = append(all, b.broken(n, at))
			continue
		}
		if conf.Name() == "" {
			conf = conf.WithName(b.cfg.Name)
		}
		n.name = conf.Name()
		all = append(all, b.with(n, conf, "the configuration", at))
	}
	return all
}

const rightConf = "one CNI configuration or configuration list"

// nodeNetwork resolves a value of clusterNetwork or defaultNetworks: a path to a
// file or a folder; else a NAD of the Multus namespace; else a file in confDir
// that holds a network of that name (contract 1.3c).
func (b *builder) nodeNetwork(key, value string, role Role) network {
	n, at := network{role: role, name: value}, netspec.Problem{Key: key}
	if isPath(value) {
		return b.pathNetwork(n, value, at)
	}
	ref := netspec.Ref{Namespace: b.cfg.MultusNamespace, Name: value}
	if nad, ok := b.facts.NADs[ref]; ok {
		n.name, at.Network = ref.String(), ref.String()
		return b.nadNetwork(n, nad, at)
	}
	config, file, skipped := b.inConfDir(value)
	if file != "" {
		return b.with(n, config, file, at)
	}
	at.Wrong = fmt.Sprintf("there is no NetworkAttachmentDefinition %s, and no file in %s holds a network named %q%s", ref, b.cfg.ConfDir, value, skipped)
	at.Right = "one of them, or the path of a CNI configuration file"
	return b.notThere(n, at)
}

func (b *builder) pathNetwork(n network, value string, at netspec.Problem) network {
	const right = "a CNI configuration file, or a folder of them"
	found := b.facts.Paths[value]
	if wrong := unreadable(append([]File{found.File}, found.Chained...)); wrong != "" {
		at.Wrong, at.Right = wrong, right
		return b.notThere(n, at)
	}
	config, err := fileConfig(found)
	switch {
	case err != nil:
		at.Wrong, at.Right = fmt.Sprintf("%s %v", found.File.Path, err), right
		return b.notThere(n, at) // it may be half-written
	case config.Name() == "":
		at.Wrong, at.Right = found.File.Path+" gives its network no name", "the key \"name\" in it"
		return b.broken(n, at)
	}
	n.name = config.Name()
	return b.with(n, config, found.File.Path, at)
}

// fileConfig parses a file, with the plugins of its folder where it is a conflist
// (CNI 1.1 subdirectory chaining).
func fileConfig(f PathFacts) (cniconf.Config, error) {
	if path.Ext(f.File.Path) != ".conflist" {
		return cniconf.Parse(f.File.Content)
	}
	more, err := plugins(f.Chained)
	if err != nil {
		return cniconf.Config{}, fmt.Errorf("chains %w", err)
	}
	return cniconf.ParseWithFolder(f.File.Content, more)
}

// unreadable tells of the first file that has no content; empty for none.
func unreadable(files []File) string {
	for _, f := range files {
		if f.Missing != "" {
			return fmt.Sprintf("%s cannot be read: %s", f.Path, f.Missing)
		}
	}
	return ""
}

func plugins(files []File) ([]cniconf.Plugin, error) {
	var all []cniconf.Plugin
	for _, f := range files {
		p, err := cniconf.ParsePlugin(f.Content)
		if err != nil {
			return nil, fmt.Errorf("%s, which %w", f.Path, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// inConfDir finds the network called name in confDir, and its file. A conflist goes
// before a conf (multi-net-spec 3.2); within one kind the file's name decides. Files
// that do not parse are not the network that is looked for; skipped names them, for
// the message where nothing is found.
func (b *builder) inConfDir(name string) (found cniconf.Config, file, skipped string) {
	for _, lists := range []bool{true, false} {
		for _, f := range b.facts.ConfDir {
			if (path.Ext(f.Path) == ".conflist") != lists {
				continue
			}
			config, err := cniconf.Parse(f.Content)
			switch {
			case f.Missing != "":
				skipped += fmt.Sprintf("; %s cannot be read: %s", f.Path, f.Missing)
			case err != nil:
				skipped += fmt.Sprintf("; %s %v", f.Path, err)
			case config.Name() == name:
				return config, f.Path, ""
			}
		}
	}
	return cniconf.Config{}, "", skipped
}

// nadNetwork takes the configuration out of a definition; at is where to put the blame.
func (b *builder) nadNetwork(n network, nad NAD, at netspec.Problem) network {
	n.resource = nad.Annotations[netspec.AnnotationResourceName]
	if strings.TrimSpace(nad.Config) == "" {
		config, file, skipped := b.inConfDir(nad.Ref.Name)
		if file == "" {
			at.Wrong = fmt.Sprintf("the NetworkAttachmentDefinition has no spec.config, and no file in %s holds a network named %q%s", b.cfg.ConfDir, nad.Ref.Name, skipped)
			at.Right = "a CNI configuration in spec.config, or such a file on the node"
			return b.broken(n, at)
		}
		return b.with(n, config, file, at)
	}
	if b.size += len(nad.Config); b.size > maxSize {
		at.Wrong = fmt.Sprintf("the configurations of the pod's networks are larger than %d MiB together", maxSize>>20)
		at.Right = "smaller ones, or fewer"
		return b.broken(n, at)
	}
	config, err := cniconf.Parse([]byte(nad.Config))
	if err != nil {
		at.Wrong, at.Right = fmt.Sprintf("the NetworkAttachmentDefinition's spec.config %v", err), rightConf
		return b.broken(n, at)
	}
	if config.Name() == "" {
		config = config.WithName(nad.Ref.Name) // multi-net-spec 3.3.2
	}
	return b.allowedPlugins(b.with(n, config, "the NetworkAttachmentDefinition's spec.config", at), at)
}

// allowedPlugins refuses plugins that the administrator does not let the networks run
// that others write and pods choose. The node's own networks and files are his.
func (b *builder) allowedPlugins(n network, at netspec.Problem) network {
	if b.cfg.AllowedPlugins == nil || n.selected == nil || n.broken {
		return n
	}
	refused := slices.DeleteFunc(n.config.Types(), func(t string) bool { return slices.Contains(b.cfg.AllowedPlugins, t) })
	if len(refused) == 0 {
		return n
	}
	slices.Sort(refused)
	refused = slices.Compact(refused)
	for i := range refused {
		refused[i] = strconv.Quote(refused[i]) // a line stays one
	}
	at.Wrong = fmt.Sprintf("the node's key allowedPlugins does not list %s", netspec.Shorten(strings.Join(refused, ", ")))
	at.Right = "a network of the plugins " + strings.Join(b.cfg.AllowedPlugins, ", ")
	return b.broken(n, at)
}

// selectedNetwork resolves the selection of a network that the pod names in the
// annotation key.
func (b *builder) selectedNetwork(n network, key string) network {
	at := netspec.Problem{Element: n.element, Network: n.name, Key: key}
	if allowed := b.cfg.AllowedNamespaces; allowed != nil && !slices.Contains(allowed, n.selected.Namespace) {
		at.Wrong = fmt.Sprintf("the node's key allowedNamespaces does not list %q", n.selected.Namespace)
		at.Right = "a network of one of the namespaces " + strings.Join(allowed, ", ")
		return b.broken(n, at)
	}
	nad, ok := b.facts.NADs[n.selected.Ref()]
	if !ok {
		at.Wrong = "there is no such NetworkAttachmentDefinition"
		at.Right = "the name of one that exists"
		return b.broken(n, at)
	}
	return b.nadNetwork(n, nad, at)
}

// isolated reports a selection that namespace isolation forbids.
func (b *builder) isolated(s netspec.Selection, element int, key string, also ...string) bool {
	allowed := slices.Concat([]string{b.pod.Namespace}, b.cfg.GlobalNamespaces, also)
	if slices.Contains(allowed, s.Namespace) {
		return false
	}
	b.problem(netspec.Problem{
		Element: element, Network: s.Ref().String(), Key: key,
		Wrong: fmt.Sprintf("namespace isolation keeps pods of %q from networks of %q", b.pod.Namespace, s.Namespace),
		Right: "a network of one of the namespaces " + strings.Join(allowed, ", "),
	})
	return true
}

// auxiliary is the node's chain of auxiliary plugins: passthru, followed by those
// of the folder auxiliaryCNIChainName beside the primary network's file
// (contract 1.3c). Without such plugins there is no chain.
func (b *builder) auxiliary() (network, bool) {
	files := b.facts.Paths[b.cfg.ClusterNetwork].Auxiliary
	n := network{role: Auxiliary, name: b.cfg.AuxiliaryCNIChainName}
	if n.name == "" || len(files) == 0 {
		return n, false
	}
	at := netspec.Problem{Key: "auxiliaryCNIChainName"}
	if wrong := unreadable(files); wrong != "" {
		at.Wrong, at.Right = wrong, "one CNI plugin's configuration in each file"
		return b.notThere(n, at), true
	}
	more, err := plugins(files)
	if err != nil {
		at.Wrong, at.Right = fmt.Sprintf("the chain holds %v", err), "one CNI plugin's configuration in each file"
		return b.broken(n, at), true
	}
	top := cniconf.Quote(map[string]any{"cniVersion": b.chainVersion(), "name": n.name, "plugins": []any{map[string]string{"type": "passthru"}}})
	config, err := cniconf.ParseWithFolder(top, more)
	if err != nil {
		at.Wrong, at.Right = fmt.Sprintf("the chain %v", err), rightConf
		return b.broken(n, at), true
	}
	return b.with(n, config, "the chain", at), true
}

// chainVersion: the chain speaks the node's CNI version.
func (b *builder) chainVersion() string {
	if b.cfg.CNIVersion == "" {
		return "1.0.0"
	}
	return b.cfg.CNIVersion
}
