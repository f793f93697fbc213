// Package command runs programs of this machine that the operator allows: by name and path, with a list of arguments,
// without a shell.
//
// It promises that a program which it reports as not started never ran, that nothing of the service's environment
// reaches one but what the operator names, that time, memory, output and input are bounded, and that what a program
// leaves running in its process group is killed when it ends, or when it must. It knows no flow, and does not know what
// the programs do.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Errors that a Result may wrap.
var (
	// ErrNotAllowed: the operator allows no command of that name.
	ErrNotAllowed = errors.New("the operator allows no such command")
	// ErrInput: there is more input than the command may have.
	ErrInput = errors.New("there is more input than the command takes")
	// ErrOutput: the command wrote more than it may, and was killed.
	ErrOutput = errors.New("the command wrote more than is read")
	// ErrTime: the command took longer than it may, and was killed.
	ErrTime = errors.New("the command took longer than it may")
)

// Sandboxes.
const (
	Bubblewrap = "bubblewrap"
	// None: the command runs as the service itself does, as the operator says in so many words.
	None = "none"
)

// Command is a program that may be run.
type Command struct {
	Name string `yaml:"name"`
	// Path is the program, absolute. Args come before the arguments of a call.
	Path string   `yaml:"path"`
	Args []string `yaml:"args"`
	// Env is its environment; EnvFrom names variables of the service's own that it gets as well.
	Env     map[string]string `yaml:"env"`
	EnvFrom []string          `yaml:"env_from"`
	// Dir is its working folder; / where it is empty.
	Dir string `yaml:"dir"`
	// User is who it runs as, which takes a service of root. Sandbox is what it runs in instead: bubblewrap or none.
	User    string `yaml:"user"`
	Sandbox string `yaml:"sandbox"`
	// Network lets one in a sandbox reach the network.
	Network bool `yaml:"network"`
	// AtOnce is how many of it may run in one process of the service.
	AtOnce int    `yaml:"at_once"`
	Limits Limits `yaml:"limits"`

	identity identity
	running  chan struct{}
}

// Limits bound one run.
type Limits struct {
	Seconds     int   `yaml:"seconds"`
	CPUSeconds  int   `yaml:"cpu_seconds"`
	MemoryMiB   int   `yaml:"memory_mib"`
	FileMiB     int   `yaml:"file_mib"`
	OutputBytes int64 `yaml:"output_bytes"`
	InputBytes  int64 `yaml:"input_bytes"`
}

// Result is what came of a run.
type Result struct {
	// Started: it may have done something. Exited: it ended by itself, with Status, or by Signal where that is not
	// empty.
	Started, Exited bool
	Status          int
	Signal          string
	Stdout          []byte
	// Stderr is the end of what it wrote there.
	Stderr []byte
	// Err says why it was not started, or did not end by itself, or why Stdout is not whole.
	Err error
}

// Set is the commands that are allowed. A nil Set allows none.
type Set struct{ byName map[string]*Command }

const (
	// stderrMost is how much of what a command writes to its standard error is kept.
	stderrMost = 4 << 10
	// maxOutput and maxInput bound what the operator can allow.
	maxOutput, maxInput = 8 << 20, 8 << 20
)

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*([_-][a-z0-9]+)*$`)
	envForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Load reads a file of commands, or each *.yaml and *.yml file of a folder.
func Load(path string) (*Set, error) {
	names := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("commands: %w", err)
	}
	if info.IsDir() {
		names = nil
		for _, pattern := range []string{"*.yaml", "*.yml"} {
			found, _ := filepath.Glob(filepath.Join(path, pattern)) // the pattern is well formed
			names = append(names, found...)
		}
		slices.Sort(names)
	}
	s := &Set{byName: map[string]*Command{}}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("commands: %w", err)
		}
		if err := s.read(text); err != nil {
			return nil, fmt.Errorf("commands in %s: %w", name, err)
		}
	}
	return s, nil
}

func (s *Set) read(text []byte) error {
	var file struct {
		Commands []*Command `yaml:"commands"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return err //nolint:wrapcheck // names the line
	}
	for i, c := range file.Commands {
		if c == nil {
			return fmt.Errorf("command %d is empty", i+1)
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("command %q: %w", c.Name, err)
		}
		if s.byName[c.Name] != nil {
			return fmt.Errorf("command %q stands there twice", c.Name)
		}
		s.byName[c.Name] = c
	}
	return nil
}

// check finds the first mistake, and fills in what is left out.
func (c *Command) check() error {
	switch {
	case !nameForm.MatchString(c.Name):
		return errors.New("name must be a slug")
	case !filepath.IsAbs(c.Path):
		return errors.New("path must be absolute")
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return errors.New("dir must be absolute")
	case slices.ContainsFunc(c.Args, func(a string) bool { return strings.Contains(a, "\x00") }):
		return errors.New("args must hold no NUL")
	case c.AtOnce < 0 || c.AtOnce > 1000:
		return errors.New("at_once must be from 1 to 1000")
	}
	info, err := os.Stat(c.Path)
	switch {
	case err != nil:
		return fmt.Errorf("path: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return errors.New("path must be a program")
	case info.Mode()&0o002 != 0:
		return errors.New("everybody may write to the program")
	}
	for _, name := range c.EnvFrom {
		if !envForm.MatchString(name) {
			return fmt.Errorf("env_from: %q is no name of a variable", name)
		}
	}
	for name, value := range c.Env {
		if !envForm.MatchString(name) || strings.Contains(value, "\x00") {
			return fmt.Errorf("env: %q is no variable", name)
		}
	}
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.AtOnce == 0 {
		c.AtOnce = 4
	}
	c.running = make(chan struct{}, c.AtOnce)
	if err := c.Limits.check(); err != nil {
		return err
	}
	return c.identify()
}

func (l *Limits) check() error {
	for _, n := range []struct {
		name             string
		value            *int
		otherwise, limit int
	}{
		{"seconds", &l.Seconds, 30, 600}, {"cpu_seconds", &l.CPUSeconds, 30, 3600},
		{"memory_mib", &l.MemoryMiB, 1024, 1 << 20}, {"file_mib", &l.FileMiB, 64, 1 << 20},
	} {
		if *n.value == 0 {
			*n.value = n.otherwise
		}
		if *n.value < 1 || *n.value > n.limit {
			return fmt.Errorf("limits: %s must be from 1 to %d", n.name, n.limit)
		}
	}
	for _, n := range []struct {
		name  string
		value *int64
		limit int64
	}{{"output_bytes", &l.OutputBytes, maxOutput}, {"input_bytes", &l.InputBytes, maxInput}} {
		if *n.value == 0 {
			*n.value = 1 << 20
		}
		if *n.value < 1 || *n.value > n.limit {
			return fmt.Errorf("limits: %s must be from 1 to %d", n.name, n.limit)
		}
	}
	return nil
}

// environment is what the command gets to see.
func (c *Command) environment() []string {
	out := []string{}
	for _, name := range c.EnvFrom {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	for name, value := range c.Env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// Output is how much output a command may write; 0 for one that is not allowed.
func (s *Set) Output(name string) int64 {
	if s == nil || s.byName[name] == nil {
		return 0
	}
	return s.byName[name].Limits.OutputBytes
}

// Run runs a command once, until ctx ends or its time is over. ready is asked right before it starts; its error means
// that it must not.
func (s *Set) Run(ctx context.Context, name string, args []string, stdin []byte, ready func() error) Result {
	if s == nil || s.byName[name] == nil {
		return Result{Err: fmt.Errorf("%w: %s", ErrNotAllowed, name)}
	}
	c := s.byName[name]
	if int64(len(stdin)) > c.Limits.InputBytes {
		return Result{Err: ErrInput}
	}
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		return Result{Err: ctx.Err()}
	}
	defer func() { <-c.running }()
	if err := ready(); err != nil {
		return Result{Err: err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(c.Limits.Seconds)*time.Second, ErrTime)
	defer cancel()
	return c.run(ctx, args, stdin)
}
