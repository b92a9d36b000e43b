{{- define "dra-driver.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The first part of every object's name; 50 characters leave room for what follows. */}}
{{- define "dra-driver.fullname" -}}
{{- $name := include "dra-driver.name" . -}}
{{- $release := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $release .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "dra-driver.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "dra-driver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/*
What follows belongs to one program and takes (dict "root" $ "program" "node"): "node" or "controller", which is also the section of the values.
*/}}

{{- define "dra-driver.program.name" -}}
{{ include "dra-driver.fullname" .root }}-{{ .program }}
{{- end -}}

{{- define "dra-driver.program.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dra-driver.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .program }}
{{- end -}}

{{- define "dra-driver.program.labels" -}}
{{ include "dra-driver.labels" .root }}
app.kubernetes.io/component: {{ .program }}
{{- end -}}

{{/* The one place that a ServiceAccount's name comes from: workload, bindings and admission policy all ask here. */}}
{{- define "dra-driver.program.serviceAccountName" -}}
{{- default (include "dra-driver.program.name" .) (index .root.Values .program).serviceAccount.name -}}
{{- end -}}

{{/* ServiceAccount, ClusterRole and their binding; "rules" are the role's. */}}
{{- define "dra-driver.program.access" -}}
{{- $account := (index .root.Values .program).serviceAccount -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "dra-driver.program.serviceAccountName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "dra-driver.program.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
---
{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "dra-driver.program.name" . }}
  labels: {{- include "dra-driver.program.labels" . | nindent 4 }}
rules: {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "dra-driver.program.name" . }}
  labels: {{- include "dra-driver.program.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "dra-driver.program.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "dra-driver.program.serviceAccountName" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The metadata of a program's pods. */}}
{{- define "dra-driver.program.podMetadata" -}}
{{- $values := index .root.Values .program -}}
labels:
  {{- include "dra-driver.program.labels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the pods of all programs have alike; "affinity" is the pod's. */}}
{{- define "dra-driver.program.podSpec" -}}
{{- $values := index .root.Values .program -}}
serviceAccountName: {{ include "dra-driver.program.serviceAccountName" . }}
# Variables of Services, such as METRICS_PORT of one that is called metrics, would be taken for settings.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the containers of all programs have alike. */}}
{{- define "dra-driver.program.container" -}}
{{- $values := index .root.Values .program -}}
{{- $image := .root.Values.image -}}
name: {{ .program }}
image: {{ printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- with $values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
