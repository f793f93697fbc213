package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// profile is an installation, and the key to it.
type profile struct {
	URL string `yaml:"url"`
	Key string `yaml:"api_key"`
}

// profiles is what `flowlane login` writes down.
type profiles struct {
	Current  string             `yaml:"current"`
	Profiles map[string]profile `yaml:"profiles"`
}

// profilesFile is where profiles stand, below the folder that the system has for settings of a user.
func profilesFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of settings: %w", err)
	}
	return filepath.Join(dir, "flowlane", "profiles.yaml"), nil
}

// loadProfiles reads the profiles; there are none when the file is not there, and none are read of a file that others
// may read.
func loadProfiles() (profiles, error) {
	out := profiles{Profiles: map[string]profile{}}
	path, err := profilesFile()
	if err != nil {
		return out, nil //nolint:nilerr // without a home there are no profiles
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("read the profiles: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return out, fmt.Errorf("others may read the keys in %s: run `chmod 600 %s`", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return out, fmt.Errorf("read the profiles: %w", err)
	}
	if err := yaml.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("%s is not as `flowlane login` wrote it: correct or delete it", path)
	}
	if out.Profiles == nil {
		out.Profiles = map[string]profile{}
	}
	return out, nil
}

// save replaces the file, which only its owner may read.
func (s profiles) save() error {
	path, err := profilesFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	if err := writeFile(path, text); err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	return nil
}

// named returns a profile by its name.
func (s profiles) named(name string) (profile, error) {
	p, ok := s.Profiles[name]
	if !ok {
		return p, fmt.Errorf("there is no profile %q: `flowlane profiles` lists them, "+
			"`flowlane login --profile %s` makes one",
			name, name)
	}
	return p, nil
}

// keyOf returns the key that was written down with a server, the current profile's first.
func (s profiles) keyOf(url string) string {
	if p := s.Profiles[s.Current]; p.URL == url {
		return p.Key
	}
	for _, p := range s.Profiles {
		if p.URL == url {
			return p.Key
		}
	}
	return ""
}
