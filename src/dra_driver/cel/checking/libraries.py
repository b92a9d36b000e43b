"""The function libraries that Kubernetes adds to CEL's standard library, in the order in which it adds them.

A library belongs to the environment for *new* expressions when it was introduced no later than the compatibility version (one minor version
before the API server's). *Stored* expressions see every library that was not replaced by a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dra_driver.cel.syntax import macros
from dra_driver.cel.syntax.macros import MacroTable

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Library:
    """Functions (a table of signatures) and macros, with the versions in which they came and went."""

    name: str
    introduced: Version = (1, 0)
    removed: Version | None = None
    table: str = ""
    macros: MacroTable = field(default_factory=dict)


_URLS = """
url string_to_url (string) -> URL
getScheme url_get_scheme URL.() -> string
getHost url_get_host URL.() -> string
getHostname url_get_hostname URL.() -> string
getPort url_get_port URL.() -> string
getEscapedPath url_get_escaped_path URL.() -> string
getQuery url_get_query URL.() -> map(string, list(string))
isURL is_url_string (string) -> bool
"""
_REGEX = """
find string_find_string string.(string) -> string
findAll string_find_all_string string.(string) -> list(string)
findAll string_find_all_string_int string.(string, int) -> list(string)
"""
_LISTS = """
isSorted list_$T_is_sorted_bool list($T).() -> bool
sum list_int_sum_int list(int).() -> int
sum list_uint_sum_uint list(uint).() -> uint
sum list_double_sum_double list(double).() -> double
sum list_duration_sum_duration list(duration).() -> duration
max list_$T_max_$T list($T).() -> $T
min list_$T_min_$T list($T).() -> $T
indexOf list_a_index_of_int list(A).(A) -> int
lastIndexOf list_a_last_index_of_int list(A).(A) -> int
"""
INCLUDES = "includes list_includes_dyn_dyn dyn.(dyn) -> bool"
DEVICE_INCLUDES = "includes dra_includes_dyn_dyn dyn.(dyn) -> bool"
"""That of Kubernetes 1.36: it refuses long lists."""
_AUTHZ = """
path authorizer_path Authorizer.(string) -> PathCheck
group authorizer_group Authorizer.(string) -> GroupCheck
serviceAccount authorizer_serviceaccount Authorizer.(string, string) -> Authorizer
resource groupcheck_resource GroupCheck.(string) -> ResourceCheck
subresource resourcecheck_subresource ResourceCheck.(string) -> ResourceCheck
namespace resourcecheck_namespace ResourceCheck.(string) -> ResourceCheck
name resourcecheck_name ResourceCheck.(string) -> ResourceCheck
check pathcheck_check PathCheck.(string) -> Decision
check resourcecheck_check ResourceCheck.(string) -> Decision
errored decision_errored Decision.() -> bool
error decision_error Decision.() -> string
allowed decision_allowed Decision.() -> bool
reason decision_reason Decision.() -> string
"""
_AUTHZ_SELECTORS = """
fieldSelector authorizer_fieldselector ResourceCheck.(string) -> ResourceCheck
labelSelector authorizer_labelselector ResourceCheck.(string) -> ResourceCheck
"""
_OPTIONALS = """
optional.of optional_of (V) -> optional(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) -> optional(V)
optional.none optional_none () -> optional(V)
value optional_value optional(V).() -> V
hasValue optional_hasValue optional(V).() -> bool
or optional_or_optional optional(V).(optional(V)) -> optional(V)
orValue optional_orValue_value optional(V).(V) -> V
_?._ select_optional_field (dyn, string) -> optional(V)
_[?_] list_optindex_optional_int (list(V), int) -> optional(V)
_[?_] optional_list_optindex_optional_int (optional(list(V)), int) -> optional(V)
_[?_] map_optindex_optional_value (map(K, V), K) -> optional(V)
_[?_] optional_map_optindex_optional_value (optional(map(K, V)), K) -> optional(V)
_[_] optional_list_index_int (optional(list(V)), int) -> optional(V)
_[_] optional_map_index_value (optional(map(K, V)), K) -> optional(V)
last list_last list(V).() -> optional(V)
first list_first list(V).() -> optional(V)
optional.unwrap optional_unwrap (list(optional(V))) -> list(V)
unwrapOpt optional_unwrapOpt list(optional(V)).() -> list(V)
"""
_QUANTITY = """
quantity string_to_quantity (string) -> Quantity
isQuantity is_quantity_string (string) -> bool
sign quantity_sign (Quantity) -> int
isGreaterThan quantity_is_greater_than Quantity.(Quantity) -> bool
isLessThan quantity_is_less_than Quantity.(Quantity) -> bool
compareTo quantity_compare_to Quantity.(Quantity) -> int
asApproximateFloat quantity_get_float Quantity.() -> double
asInteger quantity_get_int Quantity.() -> int
isInteger quantity_is_integer Quantity.() -> bool
add quantity_add Quantity.(Quantity) -> Quantity
add quantity_add_int Quantity.(int) -> Quantity
sub quantity_sub Quantity.(Quantity) -> Quantity
sub quantity_sub_int Quantity.(int) -> Quantity
"""
_STRINGS = """
charAt string_char_at_int string.(int) -> string
indexOf string_index_of_string string.(string) -> int
indexOf string_index_of_string_int string.(string, int) -> int
lastIndexOf string_last_index_of_string string.(string) -> int
lastIndexOf string_last_index_of_string_int string.(string, int) -> int
lowerAscii string_lower_ascii string.() -> string
replace string_replace_string_string string.(string, string) -> string
replace string_replace_string_string_int string.(string, string, int) -> string
split string_split_string string.(string) -> list(string)
split string_split_string_int string.(string, int) -> list(string)
substring string_substring_int string.(int) -> string
substring string_substring_int_int string.(int, int) -> string
trim string_trim string.() -> string
upperAscii string_upper_ascii string.() -> string
format string_format string.(list(dyn)) -> string
strings.quote strings_quote (string) -> string
join list_join list(string).() -> string
join list_join_string list(string).(string) -> string
"""
_SETS = """
sets.contains list_sets_contains_list (list(T), list(T)) -> bool
sets.equivalent list_sets_equivalent_list (list(T), list(T)) -> bool
sets.intersects list_sets_intersects_list (list(T), list(T)) -> bool
"""
_IP = """
ip string_to_ip (string) -> IP
family ip_family IP.() -> int
ip.isCanonical ip_is_canonical (string) -> bool
isUnspecified ip_is_unspecified IP.() -> bool
isLoopback ip_is_loopback IP.() -> bool
isLinkLocalMulticast ip_is_link_local_multicast IP.() -> bool
isLinkLocalUnicast ip_is_link_local_unicast IP.() -> bool
isGlobalUnicast ip_is_global_unicast IP.() -> bool
isIP is_ip (string) -> bool
string ip_to_string (IP) -> string
"""
_CIDR = """
cidr string_to_cidr (string) -> CIDR
containsIP cidr_contains_ip_string CIDR.(string) -> bool
containsIP cidr_contains_ip_ip CIDR.(IP) -> bool
containsCIDR cidr_contains_cidr_string CIDR.(string) -> bool
containsCIDR cidr_contains_cidr CIDR.(CIDR) -> bool
ip cidr_ip CIDR.() -> IP
prefixLength cidr_prefix_length CIDR.() -> int
masked cidr_masked CIDR.() -> CIDR
isCIDR is_cidr (string) -> bool
string cidr_to_string (CIDR) -> string
"""
NAMED_FORMATS = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
]
_FORMAT = "validate format-validate Format.(string) -> optional(list(string))\nformat.named format-named (string) -> optional(Format)\n" + "\n".join(
    f"format.{name} format.{name} () -> Format" for name in NAMED_FORMATS
)
_TWO_VARIABLES = """
cel.@mapInsert @mapInsert_map_key_value (map(K, V), K, V) -> map(K, V)
cel.@mapInsert @mapInsert_map_map (map(K, V), map(K, V)) -> map(K, V)
"""
_SEMVER = """
semver string_to_semver (string) -> Semver
semver string_bool_to_semver (string, bool) -> Semver
isSemver is_semver_string (string) -> bool
isSemver is_semver_string_bool (string, bool) -> bool
isGreaterThan semver_is_greater_than Semver.(Semver) -> bool
isLessThan semver_is_less_than Semver.(Semver) -> bool
compareTo semver_compare_to Semver.(Semver) -> int
major semver_major Semver.() -> int
minor semver_minor Semver.() -> int
patch semver_patch Semver.() -> int
"""
_MORE_LISTS = """
slice list_slice list(T).(int, int) -> list(T)
flatten list_flatten list(list(T)).() -> list(T)
flatten list_flatten_int list(dyn).(int) -> list(dyn)
sort list_$T_sort list($T).() -> list($T)
@sortByAssociatedKeys list_$T_sortByAssociatedKeys list(T).(list($T)) -> list(T)
lists.range lists_range (int) -> list(int)
reverse list_reverse list(T).() -> list(T)
distinct list_distinct list(T).() -> list(T)
"""

ONLY_BEFORE_1_37 = "duration int64_to_duration (int) -> duration"
IDS_BEFORE_1_37 = {
    "starts_with_string": "starts_with_string_by_text",
    "ends_with_string": "ends_with_string_by_text",
    "matches": "matches_flat",
    "list_flatten_int": "list_flatten_int_unclamped",
    "lists_range": "lists_range_unlimited",
    "string_index_of_string_int": "string_index_of_string_int_unclamped",
    "string_last_index_of_string_int": "string_last_index_of_string_int_unclamped",
}
"""Overloads whose cost or limits are others with cel-go 0.26; only the engine knows them by these names."""

LIBRARIES = (
    Library("urls", table=_URLS),
    Library("regex", table=_REGEX),
    Library("lists", removed=(1, 37), table=_LISTS),
    Library("authz", (1, 27), table=_AUTHZ),
    Library("optional", (1, 28), table=_OPTIONALS, macros=macros.OPTIONAL),
    Library("quantity", (1, 28), table=_QUANTITY),
    Library("strings", (1, 29), table=_STRINGS),
    Library("sets", (1, 29), table=_SETS),
    Library("ip", (1, 30), table=_IP),
    Library("cidr", (1, 30), table=_CIDR),
    Library("format", (1, 31), table=_FORMAT),
    Library("authz selectors", (1, 31), table=_AUTHZ_SELECTORS),
    Library("two-variable comprehensions", (1, 32), table=_TWO_VARIABLES, macros=macros.TWO_VARIABLES),
    Library("semver", (1, 33), table=_SEMVER),
    Library("more lists", (1, 34), table=_MORE_LISTS, macros=macros.SORTING),
    Library("lists with includes", (1, 37), table=_LISTS + INCLUDES),
    Library("bindings", (1, 31), macros=macros.BINDINGS),
)
