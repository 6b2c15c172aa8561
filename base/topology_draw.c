/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc's tree becomes a tree of boxes, which is written as text or as SVG. A box that cannot be had marks the
 * drawing as failed, so that a drawing is whole or is not. */
#include "base/topology_draw.h"

#include <hwloc.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "base/util.h"

typedef enum kind { MACHINE, PART, MEMORY, CORE, DEVICE } kind_t;

typedef struct box {
    struct box *next, *child, **last_child;
    kind_t kind;
    int allowed;
    unsigned index; /* CORE: its number */
    hwloc_bitmap_t pus;
    char label[128];
    double x, y, w, h; /* SVG: within the one around it */
} box_t;

typedef struct drawing {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed; /* hardware threads */
    int failed;
} drawing_t;

/* ---- boxes ------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static box_t *add_box(drawing_t *d, box_t *parent,
                                                            kind_t kind, const char *fmt, ...)
{
    box_t *b = calloc(1, sizeof *b);
    va_list args;

    if (!b) {
        d->failed = 1;
        return NULL;
    }
    b->kind = kind;
    b->last_child = &b->child;
    va_start(args, fmt);
    vsnprintf(b->label, sizeof b->label, fmt, args);
    va_end(args);
    if (parent) *parent->last_child = b, parent->last_child = &b->next;
    return b;
}

static void free_box(box_t *b)
{
    for (box_t *child = b ? b->child : NULL, *next; child; child = next) {
        next = child->next;
        free_box(child);
    }
    if (b) hwloc_bitmap_free(b->pus);
    free(b);
}

static void bytes_text(uint64_t bytes, char buf[32])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1024 && unit + 1 < PSRTI_COUNT(units); unit++)
        value /= 1024;
    snprintf(buf, 32, "%.4g %s", value, units[unit]);
}

static void add_memory(drawing_t *d, box_t *parent, hwloc_obj_t obj)
{
    char size[32];

    for (hwloc_obj_t m = obj->memory_first_child; m; m = m->next_sibling) {
        if (m->type != HWLOC_OBJ_NUMANODE) { /* a cache of memory is around its node */
            add_memory(d, parent, m);
            continue;
        }
        bytes_text(m->attr->numanode.local_memory, size);
        add_box(d, parent, MEMORY, "NUMA node %u, %s", m->logical_index, size);
    }
}

static void add_core(drawing_t *d, box_t *parent, hwloc_obj_t obj)
{
    box_t *b = add_box(d, parent, CORE, "core %u", obj->logical_index);

    if (!b) return;
    b->index = obj->logical_index;
    b->allowed = hwloc_bitmap_intersects(obj->cpuset, d->allowed);
    if (!(b->pus = hwloc_bitmap_dup(obj->cpuset))) d->failed = 1;
}

/* What several cores share. */
static int is_shared(const drawing_t *d, hwloc_obj_t obj)
{
    if (obj->type == HWLOC_OBJ_PACKAGE || obj->type == HWLOC_OBJ_DIE) return 1;
    if (obj->type != HWLOC_OBJ_GROUP && !hwloc_obj_type_is_dcache(obj->type)) return 0;
    return hwloc_get_nbobjs_inside_cpuset_by_type(d->topology, obj->cpuset, HWLOC_OBJ_CORE) > 1;
}

static box_t *add_shared(drawing_t *d, box_t *parent, hwloc_obj_t obj)
{
    char size[32];
    const char *model = hwloc_obj_get_info_by_name(obj, "CPUModel");

    switch (obj->type) {
    case HWLOC_OBJ_PACKAGE:
        return add_box(d, parent, PART, "package %u%s%s", obj->logical_index, model ? ", " : "",
                       model ? model : "");
    case HWLOC_OBJ_DIE: return add_box(d, parent, PART, "die %u", obj->logical_index);
    case HWLOC_OBJ_GROUP: return add_box(d, parent, PART, "group %u", obj->logical_index);
    default:
        bytes_text(obj->attr->cache.size, size);
        return add_box(d, parent, PART, "L%u cache, %s", obj->attr->cache.depth, size);
    }
}

static void add_children(drawing_t *d, box_t *parent, hwloc_obj_t obj)
{
    add_memory(d, parent, obj);
    for (hwloc_obj_t c = obj->first_child; c; c = c->next_sibling) {
        box_t *inside = parent;
        if (c->type == HWLOC_OBJ_CORE || c->type == HWLOC_OBJ_PU) {
            add_core(d, parent, c);
            continue;
        }
        if (is_shared(d, c)) inside = add_shared(d, parent, c);
        if (inside) add_children(d, inside, c);
    }
}

/* Mbit/s of a network device, 0 when the kernel does not know. */
static long link_speed(const char *name)
{
    char path[256], line[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    long speed = fgets(line, sizeof line, file) ? strtol(line, NULL, 10) : 0;
    fclose(file);
    return speed > 0 ? speed : 0;
}

static const char *device_kind(hwloc_obj_t device)
{
    switch (device->attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_NETWORK: return "network";
    case HWLOC_OBJ_OSDEV_OPENFABRICS: return "RDMA";
    case HWLOC_OBJ_OSDEV_GPU: return "GPU";
    case HWLOC_OBJ_OSDEV_COPROC: return "accelerator";
    default: return NULL;
    }
}

static void add_devices(drawing_t *d, box_t *machine)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(d->topology, o));) {
        char near[64] = "", speed[32] = "";
        const char *kind = device_kind(o);
        if (!kind) continue;
        hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(d->topology, o);
        if (place && place->nodeset && place->type != HWLOC_OBJ_MACHINE) {
            char nodes[40];
            hwloc_bitmap_list_snprintf(nodes, sizeof nodes, place->nodeset);
            snprintf(near, sizeof near, ", at NUMA node %s", nodes);
        }
        long mbit = o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ? link_speed(o->name) : 0;
        if (mbit) snprintf(speed, sizeof speed, ", %.4g Gbit/s", (double)mbit / 1000);
        add_box(d, machine, DEVICE, "%s: %s%s%s", o->name, kind, speed, near);
    }
}

/* ---- text -------------------------------------------------------------------------------------- */

/* A run of cores that this process may use, or may not, in one line. */
static const box_t *write_cores(FILE *out, const box_t *first, int depth)
{
    hwloc_bitmap_t cores = hwloc_bitmap_alloc(), pus = hwloc_bitmap_alloc();
    const box_t *b = first;
    char core_list[256], pu_list[256];

    for (; b && b->kind == CORE && b->allowed == first->allowed; b = b->next) {
        hwloc_bitmap_set(cores, b->index);
        hwloc_bitmap_or(pus, pus, b->pus);
    }
    hwloc_bitmap_list_snprintf(core_list, sizeof core_list, cores);
    hwloc_bitmap_list_snprintf(pu_list, sizeof pu_list, pus);
    fprintf(out, "%*score%s %s: cpu %s%s\n", 2 * depth, "", first->next != b ? "s" : "", core_list,
            pu_list, first->allowed ? "" : " (not allowed to this process)");
    hwloc_bitmap_free(cores);
    hwloc_bitmap_free(pus);
    return b;
}

static void write_text(FILE *out, const box_t *b, int depth)
{
    fprintf(out, "%*s%s\n", 2 * depth, "", b->label);
    for (const box_t *c = b->child; c;) {
        if (c->kind == CORE) {
            c = write_cores(out, c, depth + 1);
            continue;
        }
        write_text(out, c, depth + 1);
        c = c->next;
    }
}

/* ---- SVG --------------------------------------------------------------------------------------- */

#define PAD 8.0
#define LINE 18.0
#define LETTER 6.6
#define ROW_WIDTH 640.0

/* Boxes inside one another, in rows. Memory and devices begin a row of their own. */
static void lay_out(box_t *b)
{
    double x = PAD, y = PAD + LINE, row = 0;

    b->w = (double)strlen(b->label) * LETTER + 2 * PAD;
    for (box_t *c = b->child, *before = NULL; c; before = c, c = c->next) {
        lay_out(c);
        int breaks = before && (before->kind != c->kind || before->kind == DEVICE);
        if (before && (breaks || x + c->w > ROW_WIDTH)) {
            x = PAD;
            y += row + PAD;
            row = 0;
        }
        c->x = x, c->y = y;
        x += c->w + PAD;
        row = PSRTI_MAX(row, c->h);
        b->w = PSRTI_MAX(b->w, x);
    }
    b->h = y + (b->child ? row + PAD : 0);
}

static void write_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        default: fputc(*text, out);
        }
}

static const char *fill_of(const box_t *b)
{
    switch (b->kind) {
    case MACHINE: return "#ffffff";
    case PART: return "#eef2f7";
    case MEMORY: return "#fbe7c3";
    case CORE: return b->allowed ? "#cfe8cf" : "#dddddd";
    case DEVICE: break;
    }
    return "#e5daf2";
}

static void write_box(FILE *out, const box_t *b, double x, double y)
{
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" fill=\"%s\" "
            "stroke=\"#555555\"/>\n<text x=\"%.1f\" y=\"%.1f\">",
            x, y, b->w, b->h, fill_of(b), x + PAD, y + LINE);
    write_escaped(out, b->label);
    fputs("</text>\n", out);
    for (const box_t *c = b->child; c; c = c->next)
        write_box(out, c, x + c->x, y + c->y);
}

static void write_svg(FILE *out, box_t *machine)
{
    lay_out(machine);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "font-family=\"monospace\" font-size=\"11\">\n",
            machine->w + 2 * PAD, machine->h + 2 * PAD);
    write_box(out, machine, PAD, PAD);
    fputs("</svg>\n", out);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

/* The affinity mask, where the topology is this machine's and not one given by HWLOC_XMLFILE or the like. */
static int load(drawing_t *d)
{
    if (hwloc_topology_init(&d->topology)) return -1;
    hwloc_topology_set_flags(d->topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(d->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(d->topology)) return -1;
    if (!(d->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(d->topology)))) return -1;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound && hwloc_topology_is_thissystem(d->topology) &&
        !hwloc_get_cpubind(d->topology, bound, HWLOC_CPUBIND_PROCESS))
        hwloc_bitmap_and(d->allowed, d->allowed, bound);
    hwloc_bitmap_free(bound);
    return 0;
}

static box_t *make_boxes(drawing_t *d)
{
    hwloc_obj_t root = hwloc_get_root_obj(d->topology);
    unsigned quota = psrti_topology_cores(NULL);
    int all = hwloc_get_nbobjs_by_type(d->topology, HWLOC_OBJ_CORE);
    char memory[32], limit[64] = "";

    bytes_text(root->total_memory, memory);
    if (hwloc_topology_is_thissystem(d->topology))
        snprintf(limit, sizeof limit, ", this process may keep %u busy", quota);
    box_t *machine = add_box(d, NULL, MACHINE, "machine: %s, %d core%s%s", memory, all,
                             all == 1 ? "" : "s", limit);
    if (!machine) return NULL;
    add_children(d, machine, root);
    add_devices(d, machine);
    return machine;
}

psrt_status_t psrti_topology_draw(psrt_drawing_t as, char **text_p)
{
    drawing_t d = { 0 };
    box_t *machine = NULL;
    char *text = NULL;
    size_t size;
    FILE *out = NULL;

    if (load(&d) || !(machine = make_boxes(&d)) || d.failed ||
        !(out = open_memstream(&text, &size)))
        d.failed = 1;
    else if (as == PSRT_DRAW_SVG)
        write_svg(out, machine);
    else
        write_text(out, machine, 0);
    if (out && fclose(out)) d.failed = 1;
    free_box(machine);
    hwloc_bitmap_free(d.allowed);
    if (d.topology) hwloc_topology_destroy(d.topology);
    if (!d.failed) return *text_p = text, PSRT_OK;
    free(text);
    return psrti_fail(PSRT_ERR_NO_MEMORY,
                      "no memory to draw the topology, or hwloc cannot read it");
}
