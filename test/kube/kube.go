package kube

import (
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/cri-client/pkg/fake"
	_ "k8s.io/kubernetes/pkg/credentialprovider/plugin"
	_ "holdfast/test/daemon"
	_ "holdfast/test/swtpm"
)
