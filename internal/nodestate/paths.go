package nodestate

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/hostroot"
)

// HostMount is where containers see the host's folders, by custom: the daemon some of
// them, a debugging container of kubectl the whole root.
const HostMount = "/host"

// Paths are the node's folders as this process sees them.
type Paths struct {
	// Root is where the host's paths begin: empty on the host itself.
	Root      string `json:"root,omitempty"`
	ConfDir   string `json:"confDir"`
	BinDir    string `json:"binDir"`
	CNIDir    string `json:"cniDir"`
	SocketDir string `json:"socketDir"`
}

// Find fills the paths that are not given: a folder of the host that is mounted below mount
// is taken from there.
func (p Paths) Find(mount string) Paths {
	if isDir(filepath.Join(mount, config.DefaultCNIConfigDir)) {
		p.Root = mount
	}
	for path, usual := range map[*string]string{
		&p.ConfDir: config.DefaultCNIConfigDir, &p.BinDir: config.DefaultBinDir,
		&p.CNIDir: config.DefaultCNIDir, &p.SocketDir: filepath.Clean(config.DefaultSocketDir),
	} {
		if *path != "" {
			continue
		}
		*path = usual
		if mounted := filepath.Join(mount, usual); isDir(mounted) {
			*path = mounted
		}
	}
	return p
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// hidden tells that a folder of the host is not to be seen from this container.
func (p Paths) hidden(dir string) bool { return p.Root != "" && !isDir(dir) }

// readHost reads a file by the host's name for it.
func (p Paths) readHost(path string) ([]byte, error) {
	f, err := hostroot.Open(p.Root, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrInvalid}
	}
	return io.ReadAll(f)
}
