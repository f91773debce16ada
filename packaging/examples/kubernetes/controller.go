//go:build ignore

// Controller watches the ConfigMaps of a namespace with an informer, as other
// controllers do, and prints the changes. It contains no reference to holdfast: only
// the kubeconfig does. client-go takes the kubeconfig's path from $KUBECONFIG.
//
//	KUBECONFIG=controller.kubeconfig go run controller.go -namespace default
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	namespace := flag.String("namespace", "default", "the namespace to follow")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { fmt.Println("added", object.(*corev1.ConfigMap).Name) },
		DeleteFunc: func(object any) { fmt.Println("deleted", name(object)) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	fmt.Println("in step")
	<-ctx.Done()
	return nil
}

// name returns the name of a deleted object: when the watch was interrupted before
// the deletion, only the object's key is known.
func name(object any) string {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Key
	}
	return object.(*corev1.ConfigMap).Name
}
