// Manifests reads Kubernetes manifests as the API server does with strict validation: an unknown or doubled field,
// and a value of another type, is an error. It asks no server.
//
//	go -C .ci/manifests run . ../../docs/deploy/kubernetes.yaml
package main

import (
	"bytes"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds are those that our manifests use.
var kinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "ConfigMap"}:       func() any { return new(corev1.ConfigMap) },
	{APIVersion: "v1", Kind: "Service"}:         func() any { return new(corev1.Service) },
	{APIVersion: "apps/v1", Kind: "Deployment"}: func() any { return new(appsv1.Deployment) },
}

func main() {
	failed := false
	for _, name := range os.Args[1:] {
		if err := check(name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for i, doc := range bytes.Split(text, []byte("\n---\n")) {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
		object, ok := kinds[meta]
		if !ok {
			return fmt.Errorf("document %d: %s of %s is not known here", i+1, meta.Kind, meta.APIVersion)
		}
		if err := yaml.UnmarshalStrict(doc, object()); err != nil {
			return fmt.Errorf("document %d, %s: %w", i+1, meta.Kind, err)
		}
	}
	return nil
}
