"""Checks deploy/kubernetes: KUBERNETES_SERVER names the binary whose flags the manifests set."""

import copy
import os
import unittest

import manifests


def walk(value, path=()):
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from walk(child, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def by_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


class Manifests(unittest.TestCase):
    def setUp(self):
        self.builds = {name: manifests.build(name) for name in manifests.BUILDS}

    def each(self, kind):
        for name, objects in self.builds.items():
            for item in by_kind(objects, kind):
                yield name, item

    def test_every_object_is_valid(self):
        for name, objects in self.builds.items():
            self.assertTrue(objects, name)
            for item in objects:
                self.assertEqual(manifests.check(item), [], name)

    def test_an_unknown_field_anywhere_is_found(self):
        # Maps that users name the keys of take every field.
        free = {"labels", "matchLabels", "annotations", "data", "requests", "limits", "selector", "metadata"}
        n = 0
        for name, objects in self.builds.items():
            for item in objects:
                for path, value in walk(item):
                    if not isinstance(value, dict) or free & set(path):
                        continue
                    broken = copy.deepcopy(item)
                    at(broken, path)["replcias"] = 1
                    self.assertNotEqual(manifests.check(broken), [], f"{name} {item['kind']} {path}")
                    n += 1
        self.assertGreater(n, 100)

    def test_a_wrong_type_is_found(self):
        for name, kind, path, value in (
                ("base", "Deployment", ("spec", "strategy"), "fast"),
                ("base", "HorizontalPodAutoscaler", ("spec", "maxReplicas"), "eight"),
                ("base", "Service", ("spec", "ports"), {"port": 1}),
                ("overlays/gateway", "InferencePool", ("spec", "targetPorts"), [{"number": "50051"}]),
                ("overlays/gateway", "InferencePool", ("spec", "endpointPickerRef", "failureMode"), "Never"),
                ("kserve", "ServingRuntime", ("spec", "containers"), [{"image": "x"}]),
                ("kserve", "InferenceService", ("spec", "predictor", "minReplicas"), True)):
            item = copy.deepcopy(by_kind(self.builds[name], kind)[0])
            at(item, path[:-1])[path[-1]] = value
            self.assertNotEqual(manifests.check(item), [], f"{kind} {path}")

    def test_a_missing_field_is_found(self):
        for name, kind, path in (("overlays/gateway", "InferencePool", ("spec", "selector")),
                                 ("kserve", "InferenceService", ("spec", "predictor", "model", "modelFormat")),
                                 ("base", "Deployment", ("spec", "selector"))):
            item = copy.deepcopy(by_kind(self.builds[name], kind)[0])
            del at(item, path[:-1])[path[-1]]
            self.assertNotEqual(manifests.check(item), [], f"{kind} {path}")

    def test_variables_are_flags_of_serve(self):
        flags = manifests.serve_flags(os.environ["KUBERNETES_SERVER"])
        self.assertIn("LOWKEY_PORT", flags)
        for name, item in self.each("ConfigMap"):
            self.assertLessEqual(set(item["data"]), flags, name)
        for name, item in self.each("Deployment"):
            for container in item["spec"]["template"]["spec"]["containers"]:
                ours = {e["name"] for e in container["env"] if e["name"].startswith("LOWKEY_")}
                self.assertLessEqual(ours, flags, name)

    def test_pods_are_confined(self):
        for name, item in self.each("Deployment"):
            pod = item["spec"]["template"]["spec"]
            self.assertFalse(pod["enableServiceLinks"], name)
            self.assertFalse(pod["automountServiceAccountToken"], name)
            self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
            for container in pod["containers"]:
                context = container["securityContext"]
                self.assertTrue(context["readOnlyRootFilesystem"], name)
                self.assertFalse(context["allowPrivilegeEscalation"], name)
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]}, name)
                self.assertEqual(container["resources"]["requests"]["memory"],
                                 container["resources"]["limits"]["memory"], name)

    def test_only_the_clear_component_serves_without_credentials(self):
        for name, item in self.each("Deployment"):
            flags = by_kind(self.builds[name], "ConfigMap")[0]["data"]
            container = item["spec"]["template"]["spec"]["containers"][0]
            variables = {e["name"] for e in container["env"]}
            probes = {container[p]["httpGet"]["scheme"] for p in ("startupProbe", "readinessProbe", "livenessProbe")}
            policy = by_kind(self.builds[name], "NetworkPolicy")[0]
            if name == "overlays/gateway":
                self.assertEqual(flags["LOWKEY_INSECURE"], "true")
                self.assertNotIn("LOWKEY_TLS_CERT", variables)
                self.assertEqual(probes, {"HTTP"})
                self.assertEqual([r["from"] for r in policy["spec"]["ingress"]],
                                 [[{"namespaceSelector": {"matchLabels": {"lowkey.access": "true"}}}]])
            else:
                self.assertNotIn("LOWKEY_INSECURE", flags, name)
                self.assertLessEqual({"LOWKEY_TLS_CERT", "LOWKEY_TLS_KEY", "LOWKEY_TOKENS"}, variables)
                self.assertEqual(probes, {"HTTPS"}, name)

    def test_pods_have_the_time_to_drain(self):
        for name, item in self.each("Deployment"):
            pod = item["spec"]["template"]["spec"]
            grace = int(by_kind(self.builds[name], "ConfigMap")[0]["data"]["LOWKEY_GRACE"])
            pause = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], pause + grace + 5, name)

    def test_selectors_find_the_pods(self):
        for name, item in self.each("Deployment"):
            labels = item["spec"]["template"]["metadata"]["labels"].items()
            objects = self.builds[name]
            self.assertLessEqual(by_kind(objects, "Service")[0]["spec"]["selector"].items(), labels)
            for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"),
                                ("InferencePool", "selector")):
                for other in by_kind(objects, kind):
                    chosen = other["spec"][field]["matchLabels"]
                    self.assertTrue(chosen, f"{name} {kind}")
                    self.assertLessEqual(chosen.items(), labels, f"{name} {kind}")


if __name__ == "__main__":
    unittest.main()
