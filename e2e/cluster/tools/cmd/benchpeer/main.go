// Command benchpeer is what `make bench` measures our node program against: the least kubelet plugin that a Go author would write on
// k8s.io/dynamic-resource-allocation/kubeletplugin and still run in production. Same devices, a CDI file for each claim, a durable JSON checkpoint.
//
// It is given every advantage: devices and container edits come ready-made from a file, so it asks no driver library and no directory of the host;
// it logs nothing about claims, serves no health and no metrics; the checkpoint is read once and written once a call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

type options struct {
	driver, node                   string
	kubeconfig, server, ca, token  string
	pluginDir, registryDir, cdiDir string
	devices                        string
	qps                            float64
	burst                          int
}

func main() {
	var o options
	flag.StringVar(&o.driver, "driver-name", "peer.example.com", "name of the driver")
	flag.StringVar(&o.node, "node-name", "", "name of this node's Node object, which is also the pool's name")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; without it and without --api-server the in-cluster configuration is used")
	flag.StringVar(&o.server, "api-server", "", "address of the API server")
	flag.StringVar(&o.ca, "ca-file", "", "file with the CA certificates of the API server")
	flag.StringVar(&o.token, "token-file", "", "file with the bearer token")
	flag.StringVar(&o.pluginDir, "plugin-dir", "", "directory of the service socket and the checkpoint (default: the kubelet's, by driver name)")
	flag.StringVar(&o.registryDir, "registry-dir", kubeletplugin.KubeletRegistryDir, "directory in which the kubelet looks for plugins")
	flag.StringVar(&o.cdiDir, "cdi-dir", "/var/run/cdi", "directory in which the container runtime looks for CDI specs")
	flag.StringVar(&o.devices, "devices", "", "JSON file with the devices to publish and their container edits")
	flag.Float64Var(&o.qps, "kube-api-qps", 0, "requests a second to the API server; 0 is client-go's default of 5")
	flag.IntVar(&o.burst, "kube-api-burst", 0, "requests at once to the API server; 0 is client-go's default of 10")
	flag.Parse()
	if o.pluginDir == "" {
		o.pluginDir = filepath.Join(kubeletplugin.KubeletPluginsDir, o.driver)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, stop, o); err != nil {
		fmt.Fprintf(os.Stderr, "benchpeer: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stop func(), o options) error {
	client, err := connect(o)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	hardware, err := loadHardware(o.devices)
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if err := errors.Join(os.MkdirAll(o.pluginDir, 0o750), os.MkdirAll(o.cdiDir, 0o755)); err != nil {
		return err
	}
	plugin, err := newPlugin(o.driver, o.node, hardware, filepath.Join(o.pluginDir, "checkpoint.json"), o.cdiDir)
	if err != nil {
		return err
	}
	plugin.fail = func(err error) {
		klog.ErrorS(err, "Ending")
		stop()
	}
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(o.driver),
		kubeletplugin.NodeName(o.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(o.pluginDir),
		kubeletplugin.RegistrarDirectoryPath(o.registryDir),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, hardware.resources(o.node)); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	<-ctx.Done()
	return nil
}

func connect(o options) (kubernetes.Interface, error) {
	config := &rest.Config{Host: o.server, BearerTokenFile: o.token, TLSClientConfig: rest.TLSClientConfig{CAFile: o.ca}}
	if o.server == "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
			return nil, err
		}
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	config.UserAgent = "benchpeer"
	return kubernetes.NewForConfig(config)
}
