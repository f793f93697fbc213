package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// commandLine is what a command is run with.
type commandLine struct {
	name  string
	args  []string
	stdin []byte
}

// maxArg bounds one argument in bytes; the kernel takes little more.
const maxArg = 64 << 10

// errNoExit: nobody saw how the command ended.
var errNoExit = errors.New("the end of the command was not seen")

// command renders the line of a command. What is shown as its request is that line.
func (p *preparer) command() (Request, error) {
	line := &commandLine{name: p.call.Command, args: []string{}}
	for i, t := range p.call.Compiled.Args {
		arg, given, err := p.argument(fmt.Sprintf("args[%d]", i), p.call.Args[i], i)
		if err != nil {
			return Request{}, err
		}
		if given && t != nil {
			line.args = append(line.args, arg)
		}
	}
	raw, err := p.render("stdin", p.call.Compiled.Stdin)
	if err != nil {
		return Request{}, err
	}
	if raw != nil {
		line.stdin = raw
		if v := gjson.ParseBytes(raw); v.Type == gjson.String {
			line.stdin = []byte(v.Str)
		} else if v.Type == gjson.Null {
			line.stdin = nil
		}
	}
	shown, err := json.Marshal(map[string]any{"args": line.args, "stdin": string(line.stdin)})
	if err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrParams, err)
	}
	return Request{Method: "RUN", URL: "command:" + line.name, Body: [][]byte{shown}, command: line}, nil
}

// argument renders one argument. Where an expression begins it, it must not be able to become an option of the program.
func (p *preparer) argument(place, source string, at int) (arg string, given bool, err error) {
	t := p.call.Compiled.Args[at]
	if t == nil {
		return "", false, nil
	}
	raw, err := p.render(place, t)
	if err != nil {
		return "", false, err
	}
	v := gjson.ParseBytes(raw)
	if v.Type == gjson.Null {
		return "", false, nil
	}
	arg, ok := scalar(v)
	open := strings.HasPrefix(source, "{{") && !slices.Contains(p.call.Args[:at], "--")
	switch {
	case !ok:
		return "", false, fmt.Errorf("%w: %s must be a string, a number, true or false", ErrParams, place)
	case strings.Contains(arg, "\x00") || len(arg) > maxArg:
		return "", false, fmt.Errorf("%w: %s must hold no NUL and at most %d bytes", ErrParams, place, maxArg)
	case open && strings.HasPrefix(arg, "-"):
		return "", false, fmt.Errorf("%w: %s must not begin with -, which would make it an option", ErrParams, place)
	}
	return arg, true, nil
}

// runCommand runs a command once; what it learns goes into ans.
func (s *Sender) runCommand(ctx context.Context, r *Request, g *guard, ans *Answer) {
	defer func() { ans.FinishedAt = s.now() }()
	room := answerCost(s.commands.Output(r.command.name))
	if ans.Err = r.Memory.Grow(ctx, room, room); ans.Err != nil {
		return
	}
	got := s.commands.Run(ctx, r.command.name, r.command.args, r.command.stdin, func() error {
		switch {
		case g.late():
			return ErrTooLate
		case g.confirm != nil && passed(g.fresh, s.now()):
			return g.reconfirm()
		}
		return nil
	})
	r.Memory.Keep(answerCost(int64(cap(got.Stdout))))
	ans.Err, ans.Body = got.Err, got.Stdout
	switch {
	case !got.Started:
	case !got.Exited:
		ans.Sent, ans.FailedAt = Maybe, StageWait
		if ans.Err == nil {
			ans.Err = errNoExit
		}
	default:
		ans.Sent, ans.exit = Answered, &got
	}
}

// readExit says what the end of a command proves.
func readExit(call *catalog.Call, ans *Answer) Reading {
	exit := ans.exit
	r := Reading{Kind: Unknown, Reason: ReasonUnexpected, Code: "exit_" + strconv.Itoa(exit.Status),
		Message: clean(string(exit.Stderr), maxText)}
	switch {
	case exit.Signal != "":
		r.Code = exit.Signal
	case slices.Contains(call.Exits.Success, exit.Status):
		return readStdout(call, ans)
	case slices.Contains(call.Exits.Refused, exit.Status):
		r.Kind, r.Reason = Refused, ReasonRefused
	case slices.Contains(call.Exits.Retry, exit.Status):
		r.Kind, r.Reason = NotArrived, ReasonBusy
	}
	return r
}

func readStdout(call *catalog.Call, ans *Answer) Reading {
	unreadable := Reading{Kind: Unknown, Reason: ReasonUnreadable}
	text := bytes.TrimSpace(ans.Body)
	switch {
	case ans.Err != nil:
		return unreadable
	case call.Stdout == catalog.StdoutJSON && len(text) == 0:
		return Reading{Kind: Success}
	case call.Stdout == catalog.StdoutJSON && !validJSON(text):
		return unreadable
	case call.Stdout == catalog.StdoutJSON:
		return Reading{Kind: Success, Output: bounded(text)}
	}
	return Reading{Kind: Success, Output: bounded([]byte(quote(string(text))))}
}
