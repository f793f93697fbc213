// Command example goes the whole way with a service that FLOWLANE_URL and FLOWLANE_API_KEY name: a credential, a flow,
// an upload, a run, its results, and a retry of what failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	flowlane "flowlane/sdk/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	flow := &flowlane.Client{URL: os.Getenv("FLOWLANE_URL"), APIKey: os.Getenv("FLOWLANE_API_KEY")}
	definition, err := define(ctx, flow)
	if err != nil {
		return err
	}
	type record struct {
		ID  string `json:"id"`
		Bad string `json:"bad,omitempty"`
	}
	records := flowlane.Records(record{ID: "a"}, record{ID: "b", Bad: "yes"}, record{ID: "c"})
	set, err := flow.Upload(ctx, records, flowlane.UploadOptions{
		ChunkSize: 2, Concurrency: 1, OnProgress: func(records int) { fmt.Println("stored", records) },
	})
	if err != nil {
		return err
	}
	started, err := flow.TriggerDefinition(ctx, definition, &flowlane.TriggerRequest{RecordSetID: &set.ID})
	if err != nil {
		return err
	}
	if err := show(ctx, flow, "batch", started.BatchID); err != nil {
		return err
	}
	for event, err := range flow.Follow(ctx, started.BatchID+".0.1", "") {
		if err != nil {
			return err
		}
		fmt.Println(event.Name)
	}
	again, err := flow.RetryBatch(ctx, started.BatchID, &flowlane.BatchRetry{JobStatuses: []string{"rejected"}})
	if err != nil {
		return err
	}
	if err := show(ctx, flow, "retry", again.BatchID); err != nil {
		return err
	}
	_, err = flow.GetBatch(ctx, "unknown")
	var refused *flowlane.APIError
	if !errors.As(err, &refused) {
		return err
	}
	fmt.Println(refused.Status, refused.Code, refused.RequestID != "")
	return nil
}

// define makes a credential and a flow that uses it.
func define(ctx context.Context, flow *flowlane.Client) (id string, err error) {
	credential, err := flow.CreateCredential(ctx, &flowlane.CredentialCreate{
		Name: "example", PlatformID: "dialer", AuthMethod: "basic_auth",
		Credentials: map[string]any{"username": "acme", "password": "x"},
	}, nil)
	if err != nil {
		return "", err
	}
	definition, err := flow.CreateDefinition(ctx, flowlane.DefinitionFromSteps{
		Name: "example", Status: flowlane.Ptr(flowlane.NewDefinitionStatusActive),
		Steps: []flowlane.StepInput{{ID: "send", Tasks: []flowlane.TaskInput{{
			ID: "up", ActionID: "dialer__api__upload", CredentialID: &credential.ID,
			Params: map[string]any{"list": "example", "key_field": "id", "row": "{{ input }}"},
		}}}},
	})
	return definition.ID, err
}

// show waits for a batch and prints its results.
func show(ctx context.Context, flow *flowlane.Client, name, id string) error {
	batch, err := flow.Wait(ctx, id, nil)
	if err != nil {
		return err
	}
	fmt.Println(name, batch.Status)
	for result, err := range flow.Results(ctx, id, "") {
		if err != nil {
			return err
		}
		line := fmt.Sprint(result.Position, " ", result.Status)
		if result.Error != nil && result.Error.ProviderMessage != nil {
			line += " " + *result.Error.ProviderMessage
		}
		fmt.Println(line)
	}
	return nil
}
