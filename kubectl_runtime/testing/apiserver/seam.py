"""Temporary stand-ins until the built-in kinds and discovery are there."""
from __future__ import annotations
from kubectl_runtime.testing.apiserver.registry import ResourceType, Subresource
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.testing.apiserver.schemas import builtin
from kubectl_runtime.testing.apiserver.names import dns_label_errors
from kubectl_runtime.testing.apiserver.crd_strategy import CrdStrategy

class NamespaceStrategy(BuiltinStrategy):
    has_status=True
    delete_returns_object=True
    def default(self,obj):
        if obj["metadata"].get("name"):
            obj["metadata"].setdefault("labels",{})["kubernetes.io/metadata.name"]=obj["metadata"]["name"]
    def validate_name(self,name,*,prefix=False): return dns_label_errors(name,prefix=prefix)
    def prepare_create(self,obj,ctx):
        obj["status"]={"phase":"Active"}; obj["spec"]={"finalizers":["kubernetes"]}
    def holds_deletion(self,obj): return bool((obj.get("spec") or {}).get("finalizers"))
    def prepare_delete(self,obj,ctx): obj.setdefault("status",{})["phase"]="Terminating"
class LeaseStrategy(BuiltinStrategy):
    allow_create_on_update=True
    allow_unconditional_update=False
class PodStrategy(BuiltinStrategy):
    has_status=True
    has_generation=True
    delete_returns_object=True
    supports_grace=True
    def grace_period(self,obj,requested):
        if not obj["spec"].get("nodeName"): return 0
        return requested if requested is not None else obj["spec"].get("terminationGracePeriodSeconds",30)
S=lambda n,k: Subresource(n,k)
def builtin_types():
    def t(g,v,k,p,tn,ns=True,st=BuiltinStrategy,subs=(),**kw):
        return ResourceType(g,v,k,p,k.lower(),ns,strategy=st(tn),schema_loader=lambda:builtin(g,v,k),subresources=subs,**kw)
    return [
      t("","v1","Namespace","namespaces","core.v1.Namespace",False,NamespaceStrategy,(S("status","Namespace"),Subresource("finalize","Namespace",("update",))),short_names=("ns",)),
      t("","v1","ConfigMap","configmaps","core.v1.ConfigMap",short_names=("cm",)),
      t("","v1","Secret","secrets","core.v1.Secret"),
      t("","v1","Pod","pods","core.v1.Pod",st=PodStrategy,subs=(S("status","Pod"),),short_names=("po",)),
      t("coordination.k8s.io","v1","Lease","leases","coordination.v1.Lease",st=LeaseStrategy),
      t("apiextensions.k8s.io","v1","CustomResourceDefinition","customresourcedefinitions","apiextensions.v1.CustomResourceDefinition",False,CrdStrategy,(S("status","CustomResourceDefinition"),),short_names=("crd",)),
      t("apps","v1","Deployment","deployments","apps.v1.Deployment"),
    ]
class discovery:
    @staticmethod
    def respond(registry, request): return None
openapi=discovery
