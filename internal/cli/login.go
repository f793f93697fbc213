package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"flowlane/internal/cli/remote"
)

// loginCommand asks for what is not given. The key is no flag: the flags of a process are there for all to read.
type loginCommand struct {
	output

	URL     string `arg:"" name:"url" optional:"" help:"Root of the server, for example https://flows.example.com."`
	Profile string `default:"default" env:"FLOWLANE_PROFILE" help:"Name of the profile."`
}

// maxKey bounds what is read as a key.
const maxKey = 4096

// Run checks a key at its server, and writes both down.
func (c *loginCommand) Run(ctx context.Context, p *process) error {
	in := bufio.NewReader(io.LimitReader(os.Stdin, maxKey))
	address, err := c.URL, error(nil)
	if address == "" {
		fmt.Fprint(p.stderr, "Server: ")
		if address, err = in.ReadString('\n'); err != nil {
			return usageError{errors.New("name the server: flowlane login URL")}
		}
	}
	key, err := readKey(p, in)
	if err != nil {
		return err
	}
	client, err := remote.New(strings.TrimSpace(address), key)
	if err != nil {
		return err //nolint:wrapcheck // says what to set
	}
	var me struct {
		Organization struct{ Name string }
		Role         string
	}
	res, err := client.Send(ctx, remote.Request{Method: "GET", Path: "/account/me", Repeat: true})
	if err != nil {
		return client.Explain("log in", err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&me); err != nil {
		return fmt.Errorf("log in: %s does not answer as Flowlane does", client.URL)
	}
	saved, err := loadProfiles()
	if err != nil {
		return err
	}
	saved.Profiles[c.Profile] = profile{URL: client.URL, Key: key}
	saved.Current = c.Profile
	if err := saved.save(); err != nil {
		return err
	}
	path, _ := profilesFile()
	facts := map[string]string{
		"profile": c.Profile, "url": client.URL, "organization": me.Organization.Name, "role": me.Role, "file": path,
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "You are %s in %s at %s. The key stands in %s, profile %q.\n",
			me.Role, me.Organization.Name, client.URL, path, c.Profile)
	})
}

// readKey asks for a key without showing it, or reads the first line that is piped in.
func readKey(p *process, in *bufio.Reader) (string, error) {
	fd := int(os.Stdin.Fd()) //nolint:gosec // a small number
	var text string
	if term.IsTerminal(fd) {
		fmt.Fprint(p.stderr, "API key (not shown): ")
		read, err := term.ReadPassword(fd)
		fmt.Fprintln(p.stderr)
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		text = string(read)
	} else {
		text, _ = in.ReadString('\n') // what is missing is said below
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", usageError{errors.New("no API key: type it when asked, or pipe it in, one line")}
	}
	return text, nil
}

type logoutCommand struct {
	Profile string `env:"FLOWLANE_PROFILE" help:"Name of the profile. Default: the current one."`
}

// Run forgets a profile. The key stays good until it is revoked.
func (c *logoutCommand) Run(_ context.Context, p *process) error {
	saved, err := loadProfiles()
	if err != nil {
		return err
	}
	if c.Profile == "" {
		c.Profile = saved.Current
	}
	if _, err := saved.named(c.Profile); err != nil {
		return err
	}
	delete(saved.Profiles, c.Profile)
	if saved.Current == c.Profile {
		saved.Current = ""
		for _, name := range slices.Sorted(maps.Keys(saved.Profiles)) {
			saved.Current = name
			break
		}
	}
	if err := saved.save(); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "Profile %q is forgotten. Its key stays good until `flowlane keys revoke`.\n", c.Profile)
	return nil
}

// profilesCommand lists profiles, or makes one the current one.
type profilesCommand struct {
	output

	Use string `help:"Make this profile the current one." placeholder:"NAME"`
}

type profileFacts struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

// Run lists the profiles; keys are not shown.
func (c *profilesCommand) Run(_ context.Context, p *process) error {
	saved, err := loadProfiles()
	if err != nil {
		return err
	}
	if c.Use != "" {
		if _, err := saved.named(c.Use); err != nil {
			return err
		}
		saved.Current = c.Use
		if err := saved.save(); err != nil {
			return err
		}
	}
	facts := []profileFacts{}
	for _, name := range slices.Sorted(maps.Keys(saved.Profiles)) {
		facts = append(facts, profileFacts{Name: name, URL: saved.Profiles[name].URL, Current: name == saved.Current})
	}
	return c.print(p, facts, func(w io.Writer) {
		for _, f := range facts {
			mark := " "
			if f.Current {
				mark = "*"
			}
			fmt.Fprintf(w, "%s %s  %s\n", mark, f.Name, f.URL)
		}
		if len(facts) == 0 {
			fmt.Fprintln(p.stderr, "There are no profiles; `flowlane login URL` makes one.")
		}
	})
}
