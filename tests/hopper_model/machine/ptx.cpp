// PTX: an asm statement is parsed once and interpreted each time that it executes.
//
// The parser accepts the PTX that the wrappers in kernels/hopper contain: instructions with
// operands, vectors and addresses, declared registers, guards, labels and branches. An unknown
// instruction is an error. Values are bits, and each unit knows their widths. Source: PTX ISA 9.0,
// "Syntax".
#include "ptx.hpp"
#include "scheduler.hpp"

#include <ctype.h>
#include <stdio.h>

namespace hopper_model {

namespace {

struct Name {
    char text[48];
};

struct Program {
    List<Instruction> instructions;
    List<Name> variables, labels;
    List<u32> label_at;
};

void branch(Arguments &args) { args.branched = true; }
void set_if_not_equal(Arguments &args) {
    args.set(0, static_cast<u32>(args.value(1)) != static_cast<u32>(args.value(2)));
}
void move(Arguments &args) { args.set(0, args.value(1)); }
void choose(Arguments &args) { args.set(0, args.value(args.value(3) ? 1 : 2)); }

const Opcode control_opcodes[] = {{"bra.uni", branch},
                                  {"setp.ne.b32", set_if_not_equal},
                                  {"mov.u32", move},
                                  {"selp.u32", choose},
                                  {nullptr, nullptr}};

bool matches(const char *name, const char *pattern) {
    const size_t length = strlen(pattern);
    if (pattern[length - 1] == '*')
        return strncmp(name, pattern, length - 1) == 0;
    return strcmp(name, pattern) == 0;
}

Handler handler_of(const char *name) {
    const Opcode *const tables[] = {control_opcodes,  mbarrier_opcodes, barrier_opcodes,
                                    tma_opcodes,      cp_async_opcodes, wgmma_opcodes,
                                    mma_sync_opcodes, element_opcodes,  conversion_opcodes};
    for (const Opcode *table : tables)
        for (const Opcode *entry = table; entry->name; ++entry)
            if (matches(name, entry->name))
                return entry->handler;
    fail("the model has no instruction %s", name);
}

const char *const specials[] = {"%cluster_ctarank", "%clusterid.x", "%nclusterid.x",
                                "%tid.x",           "%smid",        "%nsmid"};

u64 special(u32 which) {
    const u32 size = running->block->cluster->size;
    if (which == 0)
        return running->block->rank;
    if (which == 3)
        return running->place.thread.x;
    if (which == 4) // with an even seed, two blocks run on an SM after each other
        return seed % 2 ? running->place.grid.x - 1 - running->place.block.x
                        : running->place.block.x / 2;
    if (which == 5)
        return running->place.grid.x;
    return (which == 1 ? running->place.block.x : running->place.grid.x) / size;
}

bool is_word(char c) { return isalnum(c) || c == '_' || c == '.' || c == ':' || c == '%'; }

struct Parser {
    Program &program;
    const char *at;

    void skip() {
        while (*at && (isspace(*at) || *at == ';'))
            ++at;
    }
    void word(char *to, u32 size) {
        u32 length = 0;
        while (is_word(*at) && length + 1 < size)
            to[length++] = *at++;
        to[length] = 0;
        if (!length)
            fail("the model cannot parse \"%.40s\"", at);
    }
    i64 find(List<Name> &names, const char *text) {
        for (u32 i = 0; i < names.size; ++i)
            if (strcmp(names[i].text, text) == 0)
                return i;
        return -1;
    }

    Reference reference() {
        while (isspace(*at))
            ++at;
        if (at[0] == '%' && isdigit(at[1]))
            return {Reference::operand, strtoll(at + 1, const_cast<char **>(&at), 10)};
        if (isdigit(*at) || *at == '-')
            return {Reference::number, strtoll(at, const_cast<char **>(&at), 0)};
        if (at[0] == '%' && at[1] == '%')
            ++at;
        char text[48];
        word(text, sizeof(text));
        if (strcmp(text, "_") == 0)
            return {Reference::sink, 0};
        for (u32 i = 0; i < sizeof(specials) / sizeof(*specials); ++i)
            if (strcmp(text, specials[i]) == 0)
                return {Reference::special, i};
        const i64 variable = find(program.variables, text);
        if (variable < 0)
            fail("the asm declares no %s", text);
        return {Reference::variable, variable};
    }

    // An argument: one reference, the two of a pair, or all within braces or brackets, in order.
    List<Reference> argument() {
        List<Reference> list;
        i32 depth = 0;
        do {
            while (isspace(*at) || *at == ',')
                ++at;
            if (*at == '{' || *at == '[') {
                ++depth, ++at;
            } else if (*at == '}' || *at == ']') {
                --depth, ++at;
            } else {
                list.push(reference());
            }
            while (isspace(*at))
                ++at;
        } while (depth > 0 || (*at == '|' && ++at));
        return list;
    }

    void instruction() {
        Instruction made = {};
        snprintf(made.text, sizeof(made.text), "%.*s", static_cast<int>(strcspn(at, ";")), at);
        made.guard = -1;
        made.target = -1;
        if (*at == '@') {
            ++at;
            if (*at == '!')
                made.guard_negated = true, ++at;
            made.guard = static_cast<i32>(reference().value);
            skip();
        }
        word(made.name, sizeof(made.name));
        made.handler = handler_of(made.name);
        while (isspace(*at))
            ++at;
        if (strncmp(made.name, "bra", 3) == 0) {
            Name label;
            word(label.text, sizeof(label.text));
            made.target = label_index(label);
        }
        while (*at && *at != ';') {
            made.arguments.push(argument());
            if (*at == ',')
                ++at;
        }
        program.instructions.push(made);
    }

    i32 label_index(const Name &label) {
        i64 found = find(program.labels, label.text);
        if (found < 0) {
            found = program.labels.size;
            program.labels.push(label);
            program.label_at.push(~0u);
        }
        return static_cast<i32>(found);
    }

    // A label is a word that a colon follows.
    bool label() {
        const char *end = at;
        while (isalnum(*end) || *end == '_')
            ++end;
        if (end == at || *end != ':' || end[1] == ':')
            return false;
        Name name;
        snprintf(name.text, sizeof(name.text), "%.*s", static_cast<int>(end - at), at);
        program.label_at[static_cast<u32>(label_index(name))] = program.instructions.size;
        at = end + 1;
        return true;
    }

    void all() {
        for (skip(); *at; skip()) {
            if (*at == '{' || *at == '}') {
                ++at;
            } else if (strncmp(at, ".reg", 4) == 0) {
                at += 4;
                Name type, name;
                skip();
                word(type.text, sizeof(type.text));
                skip();
                word(name.text, sizeof(name.text));
                program.variables.push(name);
            } else if (!label()) {
                instruction();
            }
        }
    }
};

Program *parsed(const char *text) {
    auto *program = static_cast<Program *>(calloc(1, sizeof(Program)));
    Parser{*program, text}.all();
    return program;
}

void check_operand(const Operand &operand) {
    const char kind = operand.constraint[strspn(operand.constraint, "=+")];
    const u32 bytes = kind == 'h' ? 2 : kind == 'l' || kind == 'd' ? 8 : 4;
    if (kind != 'n' && operand.bytes != bytes)
        fail("constraint \"%s\" has a value of %u bytes", operand.constraint, operand.bytes);
}

} // namespace

const Operand &Arguments::operand(u32 argument, u32 item) const {
    const Reference &r = list(argument).items[item];
    if (argument >= instruction.arguments.size || item >= list(argument).size ||
        r.kind != Reference::operand || r.value >= count)
        fail("argument %u is no operand of the asm", argument);
    return operands[r.value];
}

u64 Arguments::value(u32 argument, u32 item) const {
    if (argument >= instruction.arguments.size || item >= list(argument).size)
        fail("there is no argument %u, %u", argument, item);
    const Reference &r = list(argument).items[item];
    if (r.kind == Reference::number)
        return static_cast<u64>(r.value);
    if (r.kind == Reference::variable)
        return variables[r.value];
    if (r.kind == Reference::special)
        return special(static_cast<u32>(r.value));
    const Operand &from = operand(argument, item);
    u64 bits = 0;
    memcpy(&bits, from.address, from.bytes);
    return bits;
}

float Arguments::real(u32 argument, u32 item) const {
    return __builtin_bit_cast(float, static_cast<u32>(value(argument, item)));
}

void Arguments::set(u32 argument, u64 value, u32 item) const {
    const Reference &r = list(argument).items[item];
    if (r.kind == Reference::sink)
        return;
    if (r.kind == Reference::variable) {
        variables[r.value] = value;
        return;
    }
    const Operand &to = operand(argument, item);
    if (to.constraint[0] != '=' && to.constraint[0] != '+')
        fail("writes an operand of constraint \"%s\"", to.constraint);
    memcpy(to.address, &value, to.bytes);
}

void Arguments::set_real(u32 argument, float value) const {
    set(argument, __builtin_bit_cast(u32, value));
}

bool Arguments::has(const char *qualifier) const {
    return strstr(instruction.name, qualifier) != nullptr;
}

extern "C" void hopper_execute(Site *site, const Operand *operands, int count) {
    Thread &thread = *running;
    thread.site = site;
    thread.text = site->text;
    if (!site->program)
        site->program = parsed(site->text);
    for (i32 i = 0; i < count; ++i)
        check_operand(operands[i]);
    auto &program = *static_cast<Program *>(site->program);
    if (!program.instructions
             .size) // an asm without instructions, which only fixes when a value is read
        for (i32 i = 0; i < count; ++i)
            if (is_being_multiplied(thread, operands[i].address))
                fail("an accumulator is read before wgmma.wait_group");
    u64 variables[max_variables] = {};
    for (u32 at = 0; at < program.instructions.size;) {
        const Instruction &instruction = program.instructions[at++];
        thread.text = instruction.text;
        if (instruction.guard >= 0 &&
            (variables[instruction.guard] != 0) == instruction.guard_negated)
            continue;
        Arguments arguments{instruction, operands, count, variables, false};
        instruction.handler(arguments);
        go_on();
        if (arguments.branched)
            at = program.label_at[static_cast<u32>(instruction.target)];
    }
    thread.site = nullptr;
    thread.text = nullptr;
}

} // namespace hopper_model
