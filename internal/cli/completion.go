package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints what a shell runs to complete commands. What it calls back is the command completeWord.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"One of bash, zsh, fish."`
}

// completeWord is the command that shells ask; the words of the line follow it, the one to complete last.
const completeWord = "__complete"

// completions are the scripts by shell. Where there is nothing to propose, each falls back to files.
var completions = map[string]string{
	"bash": `_flowlane() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _flowlane flowlane
`,
	"zsh": `#compdef flowlane
_flowlane() {
  local -a found
  found=(${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
if [ "${funcstack[1]}" = "_flowlane" ]; then
  _flowlane
else
  if ! (( ${+functions[compdef]} )); then autoload -Uz compinit && compinit; fi
  compdef _flowlane flowlane
fi
`,
	"fish": `function __flowlane_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found ($words[1] __complete $words[2..-1] 2>/dev/null)
  if count $found >/dev/null
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c flowlane -f -a '(__flowlane_complete)'
`,
}

// Run prints the script.
func (c *completionCommand) Run(p *process) error {
	_, err := io.WriteString(p.stdout, completions[c.Shell])
	return err //nolint:wrapcheck // nobody reads it
}

// complete prints what the last of the words may become, one a line: commands, flags, or the values of a flag.
func complete(w io.Writer, root *kong.Node, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	word, before := words[len(words)-1], words[:len(words)-1]
	node := root
	var valueOf *kong.Flag
	for _, b := range before {
		if valueOf != nil { // the value of a flag
			valueOf = nil
			continue
		}
		if strings.HasPrefix(b, "-") {
			if f := flagOf(node, b); f != nil && !f.IsBool() && !strings.Contains(b, "=") {
				valueOf = f
			}
			continue
		}
		for _, child := range node.Children {
			if child.Name == b || slices.Contains(child.Aliases, b) {
				node = child
				break
			}
		}
	}
	for _, proposal := range proposals(node, valueOf, word) {
		if strings.HasPrefix(proposal, word) {
			fmt.Fprintln(w, proposal)
		}
	}
}

func proposals(node *kong.Node, valueOf *kong.Flag, word string) (out []string) {
	switch {
	case valueOf != nil:
		return choicesOf(valueOf)
	case strings.HasPrefix(word, "-"):
		name, _, assigned := strings.Cut(word, "=")
		if f := flagOf(node, name); f != nil && assigned {
			for _, choice := range choicesOf(f) {
				out = append(out, name+"="+choice)
			}
			return out
		}
		for _, flags := range node.AllFlags(true) {
			for _, f := range flags {
				out = append(out, "--"+f.Name)
			}
		}
		return out
	}
	for _, child := range node.Children {
		if !child.Hidden {
			out = append(out, child.Name)
		}
	}
	if len(node.Positional) == 1 && node.Positional[0].Enum != "" {
		out = append(out, node.Positional[0].EnumSlice()...)
	}
	return out
}

func flagOf(node *kong.Node, text string) *kong.Flag {
	name, _, _ := strings.Cut(text, "=")
	for _, flags := range node.AllFlags(false) {
		for _, f := range flags {
			if "--"+f.Name == name || (f.Short != 0 && "-"+string(f.Short) == name) {
				return f
			}
		}
	}
	return nil
}

// choicesOf returns the values of a flag: those of its enum, or those that the API names in its help.
func choicesOf(f *kong.Flag) []string {
	if f.Enum != "" {
		return slices.DeleteFunc(f.EnumSlice(), func(v string) bool { return v == "" })
	}
	if choices := f.Tag.Get(choicesTag); choices != "" {
		return strings.Split(choices, ",")
	}
	return nil
}
