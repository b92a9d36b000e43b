"""The functions of CEL's standard library. The order of a function's overloads is the order in which they are tried."""

COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
"""Types whose lists can be sorted."""

_COMPARISONS = """
{op} {name}_bool (bool, bool) -> bool
{op} {name}_int64 (int, int) -> bool
{op} {name}_int64_double (int, double) -> bool
{op} {name}_int64_uint64 (int, uint) -> bool
{op} {name}_uint64 (uint, uint) -> bool
{op} {name}_uint64_double (uint, double) -> bool
{op} {name}_uint64_int64 (uint, int) -> bool
{op} {name}_double (double, double) -> bool
{op} {name}_double_int64 (double, int) -> bool
{op} {name}_double_uint64 (double, uint) -> bool
{op} {name}_string (string, string) -> bool
{op} {name}_bytes (bytes, bytes) -> bool
{op} {name}_timestamp (timestamp, timestamp) -> bool
{op} {name}_duration (duration, duration) -> bool
"""
_ORDERS = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}

_TIMES = {
    "getFullYear": "year",
    "getMonth": "month",
    "getDayOfYear": "day_of_year",
    "getDayOfMonth": "day_of_month",
    "getDate": "day_of_month_1_based",
    "getDayOfWeek": "day_of_week",
    "getHours": "hours",
    "getMinutes": "minutes",
    "getSeconds": "seconds",
    "getMilliseconds": "milliseconds",
}
_DURATION_PARTS = ("getHours", "getMinutes", "getSeconds", "getMilliseconds")


def _time_functions() -> str:
    lines: list[str] = []
    for function, part in _TIMES.items():
        zoned = "seconds_tz" if part == "seconds" else f"{part}_with_tz"
        lines += [f"{function} timestamp_to_{part} timestamp.() -> int", f"{function} timestamp_to_{zoned} timestamp.(string) -> int"]
        if function in _DURATION_PARTS:
            lines.append(f"{function} duration_to_{part} duration.() -> int")
    return "\n".join(lines)


TABLE = f"""
_?_:_ conditional (bool, A, A) -> A
_&&_ logical_and (bool, bool) -> bool
_||_ logical_or (bool, bool) -> bool
!_ logical_not (bool) -> bool
@not_strictly_false not_strictly_false (bool) -> bool
_==_ equals (A, A) -> bool
_!=_ not_equals (A, A) -> bool
_+_ add_bytes (bytes, bytes) -> bytes
_+_ add_double (double, double) -> double
_+_ add_duration_duration (duration, duration) -> duration
_+_ add_duration_timestamp (duration, timestamp) -> timestamp
_+_ add_timestamp_duration (timestamp, duration) -> timestamp
_+_ add_int64 (int, int) -> int
_+_ add_list (list(A), list(A)) -> list(A)
_+_ add_string (string, string) -> string
_+_ add_uint64 (uint, uint) -> uint
_/_ divide_double (double, double) -> double
_/_ divide_int64 (int, int) -> int
_/_ divide_uint64 (uint, uint) -> uint
_%_ modulo_int64 (int, int) -> int
_%_ modulo_uint64 (uint, uint) -> uint
_*_ multiply_double (double, double) -> double
_*_ multiply_int64 (int, int) -> int
_*_ multiply_uint64 (uint, uint) -> uint
-_ negate_double (double) -> double
-_ negate_int64 (int) -> int
_-_ subtract_double (double, double) -> double
_-_ subtract_duration_duration (duration, duration) -> duration
_-_ subtract_int64 (int, int) -> int
_-_ subtract_timestamp_duration (timestamp, duration) -> timestamp
_-_ subtract_timestamp_timestamp (timestamp, timestamp) -> duration
_-_ subtract_uint64 (uint, uint) -> uint
{"".join(_COMPARISONS.strip().format(op=op, name=name) + chr(10) for op, name in _ORDERS.items()).strip()}
_[_] index_list (list(A), int) -> A
_[_] index_map (map(A, B), A) -> B
@in in_list (A, list(A)) -> bool
@in in_map (A, map(A, B)) -> bool
size size_bytes (bytes) -> int
size bytes_size bytes.() -> int
size size_list (list(A)) -> int
size list_size list(A).() -> int
size size_map (map(A, B)) -> int
size map_size map(A, B).() -> int
size size_string (string) -> int
size string_size string.() -> int
type type (A) -> type(A)
bool bool_to_bool (bool) -> bool
bool string_to_bool (string) -> bool
bytes bytes_to_bytes (bytes) -> bytes
bytes string_to_bytes (string) -> bytes
double double_to_double (double) -> double
double int64_to_double (int) -> double
double string_to_double (string) -> double
double uint64_to_double (uint) -> double
duration duration_to_duration (duration) -> duration
duration string_to_duration (string) -> duration
dyn to_dyn (A) -> dyn
int int64_to_int64 (int) -> int
int double_to_int64 (double) -> int
int duration_to_int64 (duration) -> int
int string_to_int64 (string) -> int
int timestamp_to_int64 (timestamp) -> int
int uint64_to_int64 (uint) -> int
string string_to_string (string) -> string
string bool_to_string (bool) -> string
string bytes_to_string (bytes) -> string
string double_to_string (double) -> string
string duration_to_string (duration) -> string
string int64_to_string (int) -> string
string timestamp_to_string (timestamp) -> string
string uint64_to_string (uint) -> string
timestamp timestamp_to_timestamp (timestamp) -> timestamp
timestamp int64_to_timestamp (int) -> timestamp
timestamp string_to_timestamp (string) -> timestamp
uint uint64_to_uint64 (uint) -> uint
uint double_to_uint64 (double) -> uint
uint int64_to_uint64 (int) -> uint
uint string_to_uint64 (string) -> uint
contains contains_string string.(string) -> bool
endsWith ends_with_string string.(string) -> bool
startsWith starts_with_string string.(string) -> bool
matches matches (string, string) -> bool
matches matches_string string.(string) -> bool
{_time_functions()}
"""
