package api_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const goClient = "../../sdk/go"

// goProgram builds a program in a module that has the Go client from outside, as the README of the client says, and
// returns its path.
func goProgram(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	client, err := filepath.Abs(goClient)
	require.NoError(t, err)
	write(t, dir, "main.go", text)
	write(t, dir, "go.mod", "module program\n\ngo 1.25.0\n")
	env := []string{"GOPROXY=off"}
	execute(t, dir, env, "go", "mod", "edit", "-require=flowlane/sdk/go@v0.1.0", "-replace=flowlane/sdk/go="+client)
	execute(t, dir, env, "go", "build", "-o", "program", ".")
	return filepath.Join(dir, "program")
}

// TestSDK_GoModule runs the example of the Go client.
func TestSDK_GoModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(goClient, "example/main.go"))
	require.NoError(t, err)
	example := goProgram(t, string(text))
	runExample(t, func(t *testing.T, env []string) string {
		t.Helper()
		return execute(t, t.TempDir(), env, example)
	})
}

const changesProgram = `package main

import (
	"context"
	"fmt"
	"os"

	flowlane "flowlane/sdk/go"
)

func main() {
	ctx, definition := context.Background(), os.Getenv("DEFINITION")
	flow := &flowlane.Client{URL: os.Getenv("FLOWLANE_URL"), APIKey: os.Getenv("FLOWLANE_API_KEY")}
	hook, err := flow.CreateWebhook(ctx, &flowlane.WebhookInput{
		DefinitionID: definition, Description: "d", RateLimit: flowlane.Ptr[int64](5), InputTemplate: map[string]any{"a": "b"},
	})
	fmt.Println(*hook.RateLimit, hook.InputTemplate, err)
	for _, change := range []flowlane.WebhookUpdate{
		{Description: flowlane.Ptr("e")},
		{RateLimit: flowlane.Set[int64](7), InputTemplate: flowlane.Set(flowlane.FreeObject{})},
		{RateLimit: flowlane.Null[int64](), InputTemplate: flowlane.Null[flowlane.FreeObject]()},
	} {
		hook, err := flow.UpdateWebhook(ctx, hook.ID, &change)
		if hook.RateLimit == nil {
			fmt.Println(hook.Description, "null", hook.InputTemplate == nil, err)
			continue
		}
		fmt.Println(hook.Description, *hook.RateLimit, hook.InputTemplate, err)
	}
	schedule, err := flow.CreateSchedule(ctx, &flowlane.ScheduleInput{
		DefinitionID: definition, Description: "d", CronExpression: "0 0 * * *", Metadata: map[string]any{"a": "b"},
	})
	fmt.Println(schedule.Metadata, err)
	schedule, err = flow.UpdateSchedule(ctx, schedule.ID, &flowlane.ScheduleUpdate{Metadata: map[string]any{}})
	fmt.Println(schedule.Metadata, err)
}
`

// TestSDK_GoChanges: a field of a change is left out, null, empty or a value, as the program says.
func TestSDK_GoChanges(t *testing.T) {
	t.Parallel()
	program := goProgram(t, changesProgram)
	s := serveStack(t, false)
	env := []string{"FLOWLANE_URL=" + s.URL, "FLOWLANE_API_KEY=" + s.Key, "DEFINITION=" + s.define(uploadSteps)}
	assert.Equal(t, `5 map[a:b] <nil>
e 5 map[a:b] <nil>
e 7 map[] <nil>
e null true <nil>
map[a:b] <nil>
map[] <nil>
`, execute(t, t.TempDir(), env, program))
}
