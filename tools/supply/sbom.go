package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom writes what a binary says that it was built of, with the licences of that. The same binary and module cache give
// the same bytes.
func sbom(ctx context.Context, binary, file string) error {
	text, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the binary: %w", err)
	}
	info, err := buildinfo.Read(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read what %s was built of: %w", binary, err)
	}
	modules, err := modulesOf(ctx, program)
	if err != nil {
		return err
	}
	r, err := readRules()
	if err != nil {
		return err
	}
	parts, err := licencesOf(modules)
	if err != nil {
		return err
	}
	licence := map[string]string{}
	for _, p := range parts {
		licence[p.name] = p.licence
	}
	maps.Copy(licence, r.Known)
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bill(info, sha256.Sum256(text), licence), cyclonedx.SpecVersion1_6); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	fmt.Printf("%s names %d modules.\n", file, len(info.Deps))
	return nil
}

// bill is what a binary with this digest was built of. licence has those of modules by path.
func bill(info *debug.BuildInfo, digest [sha256.Size]byte, licence map[string]string) *cyclonedx.BOM {
	root := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, BOMRef: "flowlane", Name: "flowlane", Version: info.Main.Version,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}},
		Properties: &[]cyclonedx.Property{},
	}
	for _, s := range info.Settings {
		*root.Properties = append(*root.Properties, cyclonedx.Property{Name: "build:" + s.Key, Value: s.Value})
	}
	components := []cyclonedx.Component{componentOf("std", strings.TrimPrefix(info.GoVersion, "go"), "",
		"BSD-3-Clause")}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		components = append(components, componentOf(dep.Path, dep.Version, dep.Sum, licence[dep.Path]))
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &root}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}
	return bom
}

// componentOf is a Go module. sum is its hash as go.sum has it, which is over all its files and so no hash that
// CycloneDX knows.
func componentOf(path, version, sum, licence string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	out := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, PackageURL: purl, Name: path, Version: version,
	}
	if sum != "" {
		out.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	if licence != "" {
		out.Licenses = &cyclonedx.Licenses{{Expression: licence}}
	}
	return out
}
