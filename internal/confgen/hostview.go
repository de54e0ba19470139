package confgen

import (
	"fmt"
	"path/filepath"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
)

// hostFolder is what is known of a folder's place on the host.
type hostFolder struct {
	place   api.Place
	path    string // on the host; "" where not known
	certain bool
}

// generate derives the content of the target.
func (w *Watcher) generate(choice Choice) ([]byte, error) {
	if w.thin != nil {
		return w.generateThin(choice)
	}
	in := Input{Config: w.cfg, Primary: choice.Config, Path: filepath.Join(w.source, choice.Name)}
	in.Auxiliary = auxiliary(in.Path, w.cfg.AuxiliaryCNIChainName)
	view, err := w.hostView(choice)
	if err != nil {
		return nil, fmt.Errorf("cannot tell where %s is on the host: %w", in.Path, err)
	}
	in.Host = view
	return Generate(in)
}

// hostView tells the plugin where things are on the host. The primary network's
// configuration goes along only where its path is a guess.
func (w *Watcher) hostView(choice Choice) (*config.HostView, error) {
	folder, err := w.findOnHost(w.source)
	if err != nil {
		return nil, err
	}
	given := w.cfg.HostCNIConfigDir
	if given != "" && same(w.source, w.cfg.CNIConfigDir) {
		folder.path, folder.certain = given, true
	}
	view := &config.HostView{Trusted: folder.certain, Folder: &folder.place}
	if folder.path != "" {
		view.PrimaryFile = filepath.Join(folder.path, choice.Name)
	}
	if !folder.certain {
		view.Snapshot = choice.Config.Bytes()
	}
	if indicator := w.cfg.ReadinessIndicatorFile; indicator != "" {
		at, err := w.findOnHost(filepath.Dir(indicator))
		if err != nil {
			return nil, err
		}
		// Waiting for a file at a wrong path would hold every pod: only a certain path will do.
		if at.certain {
			view.IndicatorFile = filepath.Join(at.path, filepath.Base(indicator))
		}
	}
	return view, nil
}

// findOnHost looks a folder up once, and again when another folder is in its place:
// a node's mount table has thousands of lines.
func (w *Watcher) findOnHost(dir string) (hostFolder, error) {
	place, err := placeOf(dir, w.proc)
	if err != nil {
		return hostFolder{}, err
	}
	if known, ok := w.folders[dir]; ok && known.place == place {
		return known, nil
	}
	found := hostFolder{place: place}
	if found.path, found.certain, err = onHost(dir, w.cfg.ChrootDir, w.proc); err != nil {
		return hostFolder{}, err
	}
	w.folders[dir] = found
	return found, nil
}
