package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// writeLayer writes entries as a layer to the file path. The same entries, date and
// Go release give the same bytes.
func writeLayer(path string, entries []entry, date time.Time, media types.MediaType) (v1.Layer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	zip := gzip.NewWriter(file)
	if err := writeTar(zip, entries, date); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := cmp.Or(zip.Close(), file.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(path, tarball.WithMediaType(media))
}

// writeTar writes entries in their order, owned by root and dated alike.
func writeTar(w io.Writer, entries []entry, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(archive, date); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	return archive.Close()
}

func (e entry) write(archive *tar.Writer, date time.Time) error {
	header := &tar.Header{Name: e.path, Typeflag: tar.TypeReg, Mode: int64(e.mode.Perm()), Linkname: e.link, ModTime: date}
	var content io.Reader = bytes.NewReader([]byte(e.text))
	switch {
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, e.path+"/"
	case e.from != "":
		file, err := os.Open(e.from)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		content, header.Size = file, info.Size()
	default:
		header.Size = int64(len(e.text))
	}
	if e.mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// untar unpacks what write writes below dir, which is made.
func untar(ctx context.Context, dir string, write func(io.Writer) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "tar", "-xpf", "-", "-C", dir)
	var said bytes.Buffer
	command.Stderr = &said
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	wrote := cmp.Or(write(stdin), stdin.Close())
	if err := command.Wait(); err != nil {
		return fmt.Errorf("tar into %s: %w: %s", dir, err, bytes.TrimSpace(said.Bytes()))
	}
	return wrote
}
