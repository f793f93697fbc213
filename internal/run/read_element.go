package run

import (
	"time"
)

// attempt counts an attempt of the task; one with elements has those of all of them.
func (t *ExecutionTask) attempt(n int32) {
	if t.Task.ForEach == nil || t.Task.Action.Call == nil {
		t.Attempts = max(t.Attempts, n)
		return
	}
	t.Attempts = 0
	for i := range t.Elements {
		t.Attempts += t.Elements[i].Attempts
	}
}

// element returns the element with this number, nil where the task makes no call for each. They come in order.
func (t *ExecutionTask) element(index int32) *ExecutionElement {
	if t.Task.ForEach == nil || t.Task.Action.Call == nil {
		return nil
	}
	for i := range t.Elements {
		if t.Elements[i].Index == index {
			return &t.Elements[i]
		}
	}
	t.Elements = append(t.Elements, ExecutionElement{Index: index, Status: TaskWaiting})
	return &t.Elements[len(t.Elements)-1]
}

// addElement takes over what a trace tells of an element.
func (t *ExecutionTask) addElement(trace *Trace) {
	ofTask := trace.CallID == "" && trace.Kind != TraceElement && trace.Kind != TraceRequeued && trace.Kind != TraceUnknown
	if ofTask {
		return
	}
	e := t.element(trace.Element)
	if e == nil {
		return
	}
	if trace.CallID != "" {
		e.Attempts = max(e.Attempts, trace.Attempt)
	}
	if trace.StartedAt > 0 {
		e.start(time.UnixMilli(trace.StartedAt).UTC())
	}
	e.Error = trace.Error
	switch {
	case trace.Kind == TraceOK, trace.Kind == TraceElement && trace.Error == nil:
		e.Status = TaskCompleted
	case trace.Kind == TraceElement, trace.Kind == TraceFailed:
		e.Status = TaskFailed
	default:
		return
	}
	e.end(trace.EndedAt)
}

// coverElement takes over where the call of an element stands.
func (t *ExecutionTask) coverElement(p *readPart, status TaskStatus) {
	e := t.element(p.Element)
	if e == nil {
		return
	}
	e.Status = status
	if status == TaskWaiting {
		e.Attempts = max(e.Attempts, p.Attempt-1)
		return
	}
	e.Attempts = max(e.Attempts, p.Attempt)
	if p.claimedAt != nil {
		e.start(*p.claimedAt)
	}
}

// cancelElements ends those that wait in an execution that is over.
func (t *ExecutionTask) cancelElements() {
	for i := range t.Elements {
		if t.Elements[i].Status == TaskWaiting {
			t.Elements[i].Status = TaskCancelled
		}
	}
}
