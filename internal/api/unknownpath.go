package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"flowlane/internal/api/violation"
	"flowlane/internal/suggest"
)

// ignoredMost is how many query parameters are named that no operation has; more would make the header long.
const ignoredMost = 10

// nameIgnored names query parameters that the operation does not have, in a header: to refuse them would break clients
// that send some of their own, and a filter that is spelled wrong would else be missed in silence.
func nameIgnored(header http.Header, operationID string, query url.Values) {
	names, meant := violation.Unknown(operationID, query)
	for i, name := range names[:min(len(names), ignoredMost)] {
		text := url.QueryEscape(name[:min(len(name), maxRequestID)]) // a header takes no other characters
		if meant[i] != "" {
			text += fmt.Sprintf("; did you mean %q?", meant[i])
		}
		header.Add("Ignored-Query-Parameters", text)
	}
}

// lostHint says of a path that is none how the one that was meant may read; empty where none is near.
func lostHint(path string) string {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); {
	case path != prefix && !strings.HasPrefix(path, prefix+"/") && documentedRules().roots[first]:
		return "Every path begins with " + prefix + ": send the request to " + prefix + path + "."
	case strings.HasPrefix(path, prefix+prefix+"/"):
		return "The path names " + prefix + " twice: send the request to " + strings.TrimPrefix(path, prefix) + "."
	case strings.HasPrefix(path, prefix+"/") && strings.HasSuffix(path, "/"):
		return "No path has a slash at its end: send the request to " + strings.TrimRight(path, "/") + "."
	}
	if near := nearPath(strings.TrimPrefix(path, prefix)); near != "" {
		return "Did you mean " + prefix + near + "? See GET /openapi.yaml for all paths."
	}
	return ""
}

// longestPath bounds the paths that are compared.
const longestPath = 200

// nearPath is the path of the document that a path is most like, with what it has in the places of parameters.
func nearPath(path string) string {
	if len(path) > longestPath {
		return ""
	}
	segments := strings.Split(path, "/")
	var near []string
	for _, known := range pathsOf(len(segments)) {
		filled := make([]string, len(known))
		for i, segment := range known {
			filled[i] = segment
			if strings.HasPrefix(segment, "{") && segments[i] != "" {
				filled[i] = segments[i]
			}
		}
		near = append(near, strings.Join(filled, "/"))
	}
	return suggest.Nearest(path, near)
}

// pathsOf are the paths of the document with so many segments, each as its segments.
func pathsOf(segments int) [][]string { return documentedPaths()[segments] }

var documentedPaths = sync.OnceValue(func() map[int][][]string {
	out := map[int][][]string{}
	for _, path := range documentedRules().paths {
		segments := strings.Split(path, "/")
		out[len(segments)] = append(out[len(segments)], segments)
	}
	return out
})
